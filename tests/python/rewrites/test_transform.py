"""A rewritten function keeps its surroundings, shows its source and diff, and hears filters and rewriters."""

# ruff: noqa: SIM108 - the functions are what users write

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
from control_flow_program import exported, up
from torch.nn import Module

from exportguard import (
    ast_or_into_bitor,
    code_needing_rewriting,
    torch_export_patches,
    torch_export_rewrite,
    transform_method,
)
from exportguard.declaration.details import PatchDetails


def signed(x, by: float = 2.0, *, shift: int = 1):
    """Scales by the sign."""
    if x.sum() > 0:
        y = x * by
    else:
        y = x + shift
    return y


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


class Model(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x


class Plain(Module):
    def forward(self, x):
        return x + 1


def test_the_surroundings_of_the_original_are_kept() -> None:
    new = transform_method(signed).func
    assert (new.__name__, new.__qualname__, new.__module__) == ("signed", "signed", __name__)
    assert (new.__doc__, new.__defaults__, new.__kwdefaults__) == (signed.__doc__, (2.0,), {"shift": 1})
    assert new.__annotations__ == signed.__annotations__
    assert new.__globals__ is signed.__globals__
    assert new.__code__.co_filename == signed.__code__.co_filename


def test_the_source_and_the_diff_show_the_change() -> None:
    rewritten = transform_method(signed)
    line = signed.__code__.co_firstlineno + 2
    assert rewritten.applied == (f"line {line}: if",)
    assert f"y, = _exportguard_rewrite.if_(x.sum() > 0, _then_{line}_4, _else_{line}_4" in rewritten.source
    assert "-    if x.sum() > 0:" in rewritten.diff()
    assert "UNDEFINED" not in rewritten.source  # y has a value on every path


def test_a_function_without_control_flow_is_left_alone() -> None:
    rewritten = transform_method(Plain.forward)
    assert not rewritten.is_changed
    assert rewritten.func is Plain.forward


def test_a_traceback_points_into_the_original_file_and_line() -> None:
    def failing(x):
        if x.sum() > 0:
            x = x + 1
        return x @ x

    try:
        transform_method(failing).func(up(3))
    except RuntimeError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
    assert (Path(frame.filename).name, frame.lineno) == ("test_transform.py", failing.__code__.co_firstlineno + 3)


def test_the_nodes_of_a_program_point_into_the_original_file() -> None:
    program = exported(Model(), (up(3),))
    node = next(node for node in program.graph.nodes if "cond" in str(node.target))
    first = Model.forward.__code__.co_firstlineno
    found = re.search(r'test_transform\.py", line (\d+), in forward', node.meta["stack_trace"])
    assert found is not None
    assert first < int(found[1]) <= first + 2  # the `if` and its branch


def test_a_decorator_stays_in_force() -> None:
    decorated = logged(signed)
    new = transform_method(decorated).func
    torch.testing.assert_close(new(up(2)), up(2) * 2)
    assert new is not decorated
    assert new.__wrapped__ is not signed
    assert decorated.__wrapped__ is signed


def test_a_filter_keeps_what_it_refuses() -> None:
    rewritten = transform_method(signed, filter_node=lambda node: not isinstance(node, ast.If))
    assert not rewritten.is_changed


def test_a_rewriter_before_the_rules_turns_or_into_bitor() -> None:
    def clamped(x):
        if torch.isinf(x).any() or torch.isnan(x).any():
            x = x.clamp(-1, 1)
        return x

    rewritten = transform_method(clamped, pre_rewriter=ast_or_into_bitor)
    assert "torch.isinf(x).any() | torch.isnan(x).any()" in rewritten.source
    assert ".or_(" not in rewritten.source
    torch.testing.assert_close(rewritten.func(up(2)), up(2))


def test_a_rewriter_behind_the_rules_sees_their_result() -> None:
    seen = []

    def post(node: ast.FunctionDef) -> ast.FunctionDef:
        seen.append(ast.unparse(node))
        return node

    transform_method(signed, post_rewriter=post)
    assert ".if_(" in seen[0]


def test_code_needing_rewriting_names_the_methods_that_test_data() -> None:
    model = torch.nn.Sequential(Model(), Plain(), torch.nn.Linear(4, 4))
    assert code_needing_rewriting(model) == [(Model, "forward")]
    assert code_needing_rewriting(Plain) == []


@pytest.mark.parametrize(
    "rewrite",
    [Model(), Model, [Model], [Model.forward], [(Model, "forward")], [{"target": Model}], [Model().forward]],
    ids=["module", "class", "classes", "function", "pair", "dict", "bound method"],
)
def test_what_to_rewrite_can_be_named_in_many_ways(rewrite: object) -> None:
    original = vars(Model)["forward"]
    with torch_export_rewrite(rewrite):
        assert vars(Model)["forward"] is not original
    assert vars(Model)["forward"] is original


def test_the_same_guard_inside_itself_changes_nothing_again() -> None:
    with torch_export_rewrite([Model]):
        once = vars(Model)["forward"]
        with torch_export_rewrite([Model]):
            assert vars(Model)["forward"] is once
        assert vars(Model)["forward"] is once


def test_sources_and_difference_are_dumped(tmp_path: Path) -> None:
    with torch_export_rewrite([Model], dump_rewriting=tmp_path):
        pass
    target = f"{__name__}.Model.forward"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{target}.{ending}" for ending in ("diff", "original.py", "patched.py")
    ]
    assert "+    return _exportguard_rewrite.if_(" in tmp_path.joinpath(f"{target}.diff").read_text()


def test_the_guard_reports_a_rewriting_and_its_details() -> None:
    details = PatchDetails()
    with torch_export_patches(rewrite=[Model], patch_details=details) as guard:
        program = torch.export.export(Model(), (up(3),))
    line = next(line for line in guard.report if line.kind == "rewrite")
    assert (line.outcome, line.targets) == ("installed", [f"{__name__}.Model.forward"])
    involved = details.patches_involved_in_graph(program)
    assert [patch.target for patch in involved if patch.declaration.kind == "rewrite"] == line.targets


def test_the_rewritten_source_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import test_callables, test_conditions, test_expressions, test_loop_exits\n"
        "import test_loops, test_returns, test_targets\n"
        "from exportguard import transform_method\n"
        "for table in [module for name, module in sorted(globals().items()) if name.startswith('test_')]:\n"
        "    for cls in table.PROGRAMS:\n"
        "        print(transform_method(cls.forward).source)\n"
    )
    folder = Path(__file__).parent
    paths = os.pathsep.join([str(folder), *sys.path])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(outputs[0]) > 10_000
    assert outputs[0] == outputs[1]
