"""Patches of constructs: which functions they changed, which they left and why, and what guards tell of it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import transformers.models

from exportguard import PatchDetails, torch_export_patches
from exportguard.declaration.constructs import SearchPatch, construct_patch
from exportguard.guard import Guard, ReportLine
from exportguard.source.editing import rewrite
from exportguard.source.wrapping import plain

SOURCE = """
import functools

def traced(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

class Layer:
    def forward(self, x):
        return slow(x) + 1

    @traced
    def decorated(self, x):
        return slow(x)

    @staticmethod
    def still(x):
        return slow(x) * 2

    def other_form(self, x):
        made = slow
        return made(x)  # slow(x)

def slow(x):
    return 10 * x
"""


class Fast(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node) != "slow(x)":
            return node
        return ast.copy_location(ast.parse("fast(x)", mode="eval").body, node)


def quick(x: int) -> int:
    return 10 * x + 1000


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> SearchPatch:
    made = construct_patch(
        name="slow calls",
        marker=r"\bslow\(x\)(?!:)",
        mentions=("slow(x)",),
        replace=rewrite(Fast, fast=quick),
        reason="it takes long",
        upstream="https://github.com/example",
    )
    return dataclasses.replace(made, kind="custom")


@pytest.fixture
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a modeling module of transformers that nobody has imported."""
    folder = tmp_path / "made_up"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "modeling_made_up.py").write_text(SOURCE)
    package = importlib.import_module("transformers.models")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    name = "transformers.models.made_up.modeling_made_up"
    yield name
    for key in (name, "transformers.models.made_up"):
        sys.modules.pop(key, None)
    vars(transformers.models).pop("made_up", None)


def opened(patch: SearchPatch, details: PatchDetails | None = None) -> object:
    return torch_export_patches(
        patch_torch=False, patch_transformers=False, serializers=False, custom_patches=[patch], patch_details=details
    )


def line_of(guard: Guard) -> ReportLine:
    return next(line for line in guard.report if line.name == "slow calls")


def paths(module: str) -> list[str]:
    return [f"{module}.Layer.{name}" for name in ("forward", "decorated", "still")]


def changed_by(patch: SearchPatch, details: PatchDetails) -> list[str]:
    return [one.target for one in details.patched if one.declaration is patch]


def results(module: ModuleType) -> list[int]:
    layer = module.Layer()
    return [layer.forward(1), layer.decorated(1), layer.still(1), layer.other_form(1)]


ORIGINAL, PATCHED = [11, 10, 20, 10], [1011, 1010, 2020, 10]


def test_every_function_that_was_changed_is_a_target_and_each_misfit_is_told(
    patch: SearchPatch, model_file: str
) -> None:
    module = importlib.import_module(model_file)
    with opened(patch) as guard:
        assert results(module) == PATCHED
        line = line_of(guard)
        assert (line.outcome, line.targets) == ("installed", paths(model_file))
        misfit = f"{model_file}.Layer.other_form (does not contain what Fast rewrites)"
        assert line.reason == f"it takes long; does not fit: {misfit}"
        assert f" installed          {line.reason}\n" in guard.report_text
    assert results(module) == ORIGINAL
    assert isinstance(vars(module.Layer)["still"], staticmethod)


def test_a_construct_that_no_module_has_is_not_installed(patch: SearchPatch) -> None:
    with opened(patch) as guard:
        line = line_of(guard)
        assert (line.outcome, line.reason) == ("waiting", "met nowhere in the models that are imported")
    assert patch.verdict_here().fit == "not needed"


def test_a_model_that_is_imported_later_changes_every_report(patch: SearchPatch, model_file: str) -> None:
    details = PatchDetails()
    with opened(patch, details) as guard:
        module = importlib.import_module(model_file)
        assert results(module) == PATCHED
        line = line_of(guard)
        assert (line.outcome, line.targets) == ("installed", paths(model_file))
        assert line.reason in guard.report_text
        assert changed_by(patch, details) == paths(model_file)
    assert results(module) == ORIGINAL
    assert changed_by(patch, details) == paths(model_file)
    assert "+    return fast(x) + 1" in next(one for one in details.patched if one.declaration is patch).diff()


def test_a_function_that_only_has_another_form_does_not_fit(
    patch: SearchPatch, model_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(model_file)
    for name in ("forward", "decorated", "still"):
        delattr(module.Layer, name)
    assert patch.verdict_here().fit == "does not fit"
    with opened(patch) as guard:
        assert line_of(guard).outcome == "skipped"
        assert line_of(guard).reason.startswith("does not fit: ")


def test_what_came_later_stays_when_an_inner_guard_ends(patch: SearchPatch, model_file: str) -> None:
    with opened(patch) as outer:
        with torch_export_patches(custom_patches=[{"math.tau": len}]) as inner:
            module = importlib.import_module(model_file)
            assert results(module) == PATCHED
            assert not [line for line in inner.report if line.targets == paths(model_file)]
        assert results(module) == PATCHED
        assert line_of(outer).outcome == "installed"
    assert results(module) == ORIGINAL


def test_a_module_that_another_thread_imports_is_left_alone(patch: SearchPatch, model_file: str) -> None:
    with opened(patch) as guard:
        thread = threading.Thread(target=importlib.import_module, args=(model_file,))
        thread.start()
        thread.join()
        assert results(sys.modules[model_file]) == ORIGINAL
        assert line_of(guard).outcome == "waiting"


def test_a_later_install_that_fails_leaves_nothing_behind(model_file: str) -> None:
    def refuse(raw: object) -> object:
        if getattr(raw, "__name__", "") == "decorated":
            raise ZeroDivisionError("no")
        return rewrite(Fast, fast=quick)(raw)

    patch = SearchPatch(
        name="slow calls",
        kind="custom",
        reason="it takes long",
        find=lambda module: [(module.Layer, name) for name in ("forward", "decorated") if hasattr(module, "Layer")],
        replace=refuse,
    )
    with opened(patch), pytest.raises(ZeroDivisionError):
        importlib.import_module(model_file)
    assert model_file not in sys.modules


def functions_in(module: ModuleType) -> dict[str, tuple[object, object]]:
    """Everything that the module and its classes hold by its path, functions with the code that they run."""
    owners = [
        module,
        *(value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__),
    ]
    found = {}
    for owner in owners:
        prefix = module.__name__ if owner is module else f"{module.__name__}.{owner.__qualname__}"
        held = vars(owner) if isinstance(owner, type | ModuleType) else {}
        found |= {f"{prefix}.{name}": (value, getattr(plain(value), "__code__", None)) for name, value in held.items()}
    return found


@pytest.mark.parametrize("family", ["llava_next", "mamba", "whisper", "qwen2_vl", "longformer", "rwkv"])
def test_details_name_every_function_of_a_model_that_was_replaced(family: str) -> None:
    """Found by comparing all that the module holds before and while the guard is open."""
    name = f"transformers.models.{family}.modeling_{family}"
    module = importlib.import_module(name)
    before = functions_in(module)
    details = PatchDetails()
    with torch_export_patches(patch_details=details) as guard:
        now = functions_in(module)
        changed = {path for path in before if now[path] != before[path]}
        told = [one.target for one in details.patched if one.target.startswith(f"{name}.")]
        listed = {target for line in guard.report for target in line.targets if line.outcome == "installed"}
    assert changed == {path for path in told if path in before}
    assert changed <= listed
    assert functions_in(module) == before
    assert changed or family == "whisper"
