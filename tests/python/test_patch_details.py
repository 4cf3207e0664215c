"""Which functions were replaced, how they differ, and which of them a program went through."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import InvalidArgumentError, torch_export_patches
from exportguard.caches.build import make_dynamic_cache, make_sliding_window_cache
from exportguard.command_line import main
from exportguard.declaration.details import PatchDetails
from exportguard.declaration.replaced_function import PatchedFunction
from exportguard.patches import Patch

UPDATE = "transformers.cache_utils.DynamicSlidingWindowLayer.update"


class Step(torch.nn.Module):
    def forward(self, key: torch.Tensor, cache: Any) -> Any:
        return cache.update(key, key, 0), cache


def export(cache: Any, details: PatchDetails) -> torch.export.ExportedProgram:
    with torch_export_patches(patch_details=details):
        leaves = len(torch.utils._pytree.tree_leaves(cache))
        axes = [{2: Dim.DYNAMIC}, {2: Dim.DYNAMIC}, Dim.DYNAMIC][:leaves]
        return torch.export.export(Step(), (torch.zeros(1, 2, 3, 4), cache), dynamic_shapes=({2: Dim.DYNAMIC}, axes))


def pair(length: int = 5) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.zeros(1, 2, length, 4), torch.zeros(1, 2, length, 4))]


@pytest.fixture
def update() -> PatchedFunction:
    details = PatchDetails()
    with torch_export_patches(patch_details=details):
        pass
    return next(patch for patch in details.patched if patch.target == UPDATE)


def test_the_original_and_the_replacement_are_at_hand(update: PatchedFunction) -> None:
    from transformers.cache_utils import DynamicSlidingWindowLayer

    assert update.function_to_patch is DynamicSlidingWindowLayer.update
    assert update.patch is not update.function_to_patch
    assert update.patch.__code__.co_filename == update.function_to_patch.__code__.co_filename


def test_the_diff_shows_what_was_rewritten_and_nothing_else(update: PatchedFunction) -> None:
    changed = [line for line in update.diff().splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    removed, added = ([line for line in changed if line[0] == sign] for sign in "-+")
    assert len(removed) == len(added) > 0
    assert all("keep_last(full_" in line for line in added)
    assert added[0].strip("+ ") == "self.keys = keep_last(full_key_states, -self.sliding_window + 1)"


@pytest.mark.parametrize(
    ("format", "expected"), [("text", "+++ patched"), ("rst", ".. code-block:: diff"), ("html", '<pre class="diff">')]
)
def test_the_diff_has_three_formats(update: PatchedFunction, format: str, expected: str) -> None:
    text = update.format_diff(format=format)
    assert expected in text
    assert UPDATE in text


def test_another_format_is_refused(update: PatchedFunction) -> None:
    with pytest.raises(InvalidArgumentError, match="format must be one of text, rst, html, got 'pdf'"):
        update.format_diff(format="pdf")


def test_a_program_tells_which_patches_it_went_through() -> None:
    details = PatchDetails()
    program = export(make_sliding_window_cache(pair(), window=8), details)
    assert UPDATE in [patch.target for patch in details.patches_involved_in_graph(program)]


def test_a_program_without_patched_code_involves_none() -> None:
    details = PatchDetails()
    program = export(make_dynamic_cache(pair()), details)
    assert details.patched
    assert details.patches_involved_in_graph(program) == []


def test_a_custom_patch_is_among_the_details() -> None:
    def silu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return x * 2

    details = PatchDetails()
    custom = [{"torch.nn.functional.silu": silu}]
    with torch_export_patches(patch_details=details, custom_patches=custom):
        program = torch.export.export(torch.nn.SiLU(), (torch.zeros(2),))
    assert [patch.patch for patch in details.patches_involved_in_graph(program)] == [silu]


def doubling_silu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        return y * 2

    return inner(x)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.nn.functional.silu, lambda x: x - 1, (x,))


def test_a_patch_that_only_a_branch_goes_through_is_involved() -> None:
    details = PatchDetails()
    custom = [{"torch.nn.functional.silu": doubling_silu}]
    with torch_export_patches(patch_details=details, custom_patches=custom):
        program = torch.export.export(Branches(), (torch.randn(3),))
    assert [patch.patch for patch in details.patches_involved_in_graph(program)] == [doubling_silu]


class DependsOnData(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else self.other(x)

    @staticmethod
    def other(x: torch.Tensor) -> torch.Tensor:
        return x - 1


def test_a_rewritten_function_is_involved() -> None:
    details = PatchDetails()
    with torch_export_patches(patch_details=details, rewrite=[DependsOnData.forward]):
        program = torch.export.export(DependsOnData(), (torch.randn(3),))
    (involved,) = details.patches_involved_in_graph(program)
    assert involved.function_to_patch is DependsOnData.forward
    assert involved.declaration.kind == "rewrite"
    assert "-    return x + 1 if x.sum() > 0 else self.other(x)" in involved.format_diff()


class PatchedDependsOnData:
    """No test on data."""

    _PATCHES_ = ("forward", "other", "added")
    _PATCHED_CLASS_ = DependsOnData
    _PATCHED_PR_ = "https://example.org/pull/1"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum() > 0, x + 1, self.other(x)) + self.added()  # type: ignore[attr-defined]

    @staticmethod
    def other(x: torch.Tensor) -> torch.Tensor:
        return x - 2

    def added(self) -> int:
        return 3


def test_the_methods_of_a_patched_class_are_involved() -> None:
    details = PatchDetails()
    with torch_export_patches(patch_details=details, custom_patches=[PatchedDependsOnData]):
        program = torch.export.export(DependsOnData(), (torch.randn(3),))
    assert not hasattr(DependsOnData, "added")
    involved = {patch.target.rpartition(".")[2]: patch for patch in details.patches_involved_in_graph(program)}
    assert set(involved) == {"forward", "other"}
    assert involved["other"].function_to_patch is DependsOnData.other
    added = next(patch for patch in details.patched if patch.target.endswith(".added"))
    assert added.function_to_patch is None
    assert "+def added(self)" in added.format_diff()


@pytest.mark.parametrize("format", ["text", "rst", "html"])
def test_every_format_has_the_reason_and_the_link(format: str) -> None:
    details = PatchDetails()
    with torch_export_patches(patch_details=details, custom_patches=[PatchedDependsOnData]):
        pass
    text = next(patch for patch in details.patched if patch.target.endswith("DependsOnData.other")).format_diff(format)
    assert "No test on data." in text
    assert "https://example.org/pull/1" in text


def test_all_patches_are_among_the_details_whatever_is_imported() -> None:
    program = """
        import sys
        from exportguard import PatchDetails, torch_export_patches
        assert "transformers.cache_utils" not in sys.modules
        details = PatchDetails()
        with torch_export_patches(patch_details=details):
            pass
        print(len([patch for patch in details.patched if patch.declaration.kind == "transformers"]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 2


def test_sources_are_written_to_a_folder(tmp_path: Path) -> None:
    with torch_export_patches(dump_rewriting=str(tmp_path / "sources")):
        pass
    assert "keep_last" in (tmp_path / "sources" / f"{UPDATE}.patched.py").read_text()
    assert "keep_last" not in (tmp_path / "sources" / f"{UPDATE}.original.py").read_text()
    assert (tmp_path / "sources" / f"{UPDATE}.diff").read_text().startswith("--- original")


def test_the_command_lists_the_patches_with_their_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", "sliding window"]) == 0
    out = capsys.readouterr().out
    assert "sliding window update" in out
    assert "needed" in out


@pytest.mark.parametrize("arguments", [["show", "sliding window update"], ["sliding window update", "--show"]])
def test_the_command_shows_a_patch_with_its_diff(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", *arguments]) == 0
    out = capsys.readouterr().out
    assert "keep_last" in out
    assert "https://github.com/" in out


@pytest.mark.parametrize(("format", "expected"), [("rst", ".. code-block:: diff"), ("html", '<pre class="diff">')])
def test_the_command_prints_other_formats(format: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", "show", "sliding window update", "--format", format]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["check"], ["--check"], ["check", "serializer"]])
def test_the_command_checks_that_every_patch_fits(arguments: list[str]) -> None:
    assert main(["patches", *arguments]) == 0


def test_the_check_fails_where_a_patch_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Patch.verdict
    wrong = "sliding window update"
    monkeypatch.setattr(
        Patch, "verdict", lambda self: ("does not fit", "another source") if self.name == wrong else verdict(self)
    )
    assert main(["patches", "check"]) == 1
    assert main(["patches", "check", "serializer"]) == 0
    assert main(["patches", "list"]) == 0


def test_the_check_looks_at_models_that_are_not_imported() -> None:
    module = "transformers.models.jamba.modeling_jamba"
    before = sys.modules.pop(module, None)
    try:
        assert main(["patches", "check", "jamba"]) == 0
        assert module in sys.modules
    finally:
        if before is not None:
            sys.modules[module] = before


def test_the_command_refuses_an_unknown_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", "cheque", "sliding"]) == 2
    assert "must be one of list, show, check, page, got 'cheque'" in capsys.readouterr().err


def test_the_command_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", "nothing like it"]) == 2
    assert "no patch has 'nothing like it' in its name" in capsys.readouterr().err
