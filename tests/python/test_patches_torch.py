"""Patches of torch, each with a program that behaves otherwise without it."""

from __future__ import annotations

import importlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from sympy.solvers.inequalities import reduce_inequalities
from torch.export import Dim
from transformers import DynamicCache

from exportguard import to_onnx, torch_export_patches
from exportguard.caches.build import make_dynamic_cache
from exportguard.patches.torch.constraints import log_violation
from exportguard.patches.torch.static_axes import StaticAxisError, model_line


class FixesTheBatch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] == 4 else x - 1  # this line fixes it


AXES = {"DYNAMIC": Dim.DYNAMIC, "named": Dim("batch")}


def export(axis: Any, **guard: Any) -> torch.export.ExportedProgram:
    with torch_export_patches(**guard):
        return torch.export.export(FixesTheBatch(), (torch.zeros(4, 3),), dynamic_shapes=({0: axis},))


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_an_axis_that_became_static_is_logged(axis: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        program = export(axis)
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    assert placeholder.meta["val"].shape == (4, 3)
    assert "an axis that was asked dynamic is not" in caplog.text


def test_conditions_that_sympy_cannot_solve_stop_no_export(caplog: pytest.LogCaptureFixture) -> None:
    size = sympy.Symbol("size", integer=True, positive=True)

    def check() -> None:
        reduce_inequalities(sympy.floor(sympy.floor(size / 40) / 8) * 320 >= size, size)

    with caplog.at_level(logging.WARNING, logger="exportguard"):
        log_violation(check)()
    assert "the conditions on the dynamic axes cannot be solved: " in caplog.text


class DividesATripleProduct(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cube = (x[:, None] * x[None, :-1])[:, :, None].expand(-1, -1, x.shape[0] - 2)
        return cube.reshape(-1, 6)


def test_a_sum_of_three_terms_that_a_number_divides_stops_no_export() -> None:
    """torch's solver takes two of them (2.11 to 2.13)."""
    module, x = DividesATripleProduct().eval(), torch.rand(6)
    model = to_onnx(module, (x,), dynamic_shapes=({0: Dim("n", min=3)},))
    for size in (3, 6, 8):
        x = torch.rand(size)
        (found,) = model.run({"x": x}).values()
        torch.testing.assert_close(torch.as_tensor(found), module(x))


def test_what_is_not_implemented_elsewhere_is_raised() -> None:
    def check() -> None:
        raise NotImplementedError("a guard of a kind of its own")

    with pytest.raises(NotImplementedError, match="a guard of a kind of its own"):
        log_violation(check)()


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_without_catch_constraints_it_is_an_error(axis: Any) -> None:
    with pytest.raises(Exception, match=r"specialized it to be a constant|inferred a static shape"):
        export(axis, catch_constraints=False)


class Reshapes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(4, -1) * 2  # this line fixes it


class Broadcasts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(4, 1)  # this line fixes it


class Loops(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[0]
        for i in range(x.shape[0]):  # this line fixes it
            y = y + x[i]
        return y


class Converts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.shape[0])  # this line fixes it


class Bounds(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] >= 4)
        torch._check(x.shape[0] <= 4)  # this line fixes it
        return x + 1


class Multiplies(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.T)  # this line fixes it


FIXING = [FixesTheBatch, Reshapes, Broadcasts, Loops, Converts, Bounds, Multiplies]


@pytest.mark.parametrize("axis", [*AXES.values(), Dim.AUTO], ids=[*AXES, "AUTO"])
@pytest.mark.parametrize("model", FIXING)
def test_stop_if_static_names_the_axis_and_the_line(model: type[torch.nn.Module], axis: Any) -> None:
    line = rf"the dynamic axis 0 of x \(s\d+\) becomes 4 at {re.escape(__file__)}:\d+: .*# this line fixes it"
    with pytest.raises(StaticAxisError, match=line), torch_export_patches(stop_if_static=1):
        torch.export.export(model(), (torch.zeros(4, 3),), dynamic_shapes=({0: axis},))


def test_stop_if_static_stops_at_the_axis_of_an_item() -> None:
    class OfAnItem(torch.nn.Module):
        def forward(self, inputs: Any) -> torch.Tensor:
            return inputs["pair"][1] + torch.zeros(4, 1)

    pair = {"pair": (torch.zeros(2), torch.zeros(4, 3))}
    shapes = ({"pair": (None, {0: Dim.DYNAMIC})},)
    with pytest.raises(StaticAxisError, match=r"axis 0 of inputs\.pair\.1 "), torch_export_patches(stop_if_static=1):
        torch.export.export(OfAnItem(), (pair,), dynamic_shapes=shapes)


def test_stop_if_static_stops_at_a_number() -> None:
    class OfANumber(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x + 1 if n == 3 else x

    with (
        pytest.raises(StaticAxisError, match=r"the dynamic n \(s\d+\) becomes 3 at "),
        torch_export_patches(stop_if_static=1),
    ):
        torch.export.export(OfANumber(), (torch.zeros(2), 3), dynamic_shapes=(None, Dim.DYNAMIC))


def test_the_line_is_the_callers_where_a_library_fixes_the_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may lie in a folder that is called like a library."""
    folder = tmp_path / "torch" / "exportguard"
    folder.mkdir(parents=True)
    folder.joinpath("fixing_model.py").write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.reshape(4, 3)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("fixing_model").Model()
    with (
        pytest.raises(StaticAxisError, match=r"fixing_model\.py:5: return x\.reshape"),
        torch_export_patches(stop_if_static=1),
    ):
        torch.export.export(model, (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))


@pytest.mark.parametrize("size", [0, 1])
def test_stop_if_static_stops_at_an_example_of_size_0_or_1(size: int) -> None:
    with (
        pytest.raises(Exception, match=rf"hint of {size} for dimension inputs\['x'\]\.shape\[0\]"),
        torch_export_patches(stop_if_static=1),
    ):
        torch.export.export(Converts(), (torch.zeros(size, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))


def test_stop_if_static_lets_axes_pass_that_were_not_asked_for() -> None:
    with torch_export_patches(stop_if_static=1):
        torch.export.export(Broadcasts(), (torch.zeros(4, 3),), dynamic_shapes=({1: Dim.DYNAMIC},))


def test_stop_if_static_lets_dynamic_programs_pass() -> None:
    with torch_export_patches(stop_if_static=1):
        torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))


class Length(torch.nn.Module):
    def forward(self, cache: Any) -> Any:
        return cache.layers[0].keys * 2


def saved_program() -> io.BytesIO:
    cache = make_dynamic_cache([(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))])
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Length(), (cache,)), buffer)
    buffer.seek(0)
    return buffer


def test_a_program_with_a_cache_loads_without_unrestricted_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, weights_only: bool, **kwargs: Any) -> Any:
        assert weights_only
        return original(*args, weights_only=weights_only, **kwargs)

    original = torch.load
    with torch_export_patches():
        saved = saved_program()
        monkeypatch.setattr(torch, "load", load)
        program = torch.export.load(saved)
    assert isinstance(program.example_inputs[0][0], DynamicCache)


def test_the_list_of_safe_globals_is_as_before() -> None:
    before = set(torch.serialization.get_safe_globals())
    with torch_export_patches():
        assert DynamicCache in torch.serialization.get_safe_globals()
    assert set(torch.serialization.get_safe_globals()) == before


def test_who_calls_export_is_no_line_of_the_model():
    scope = {"model_line": model_line}
    exec(compile("def exporting(): return model_line()", torch.export.__file__, "exec"), scope)
    assert scope["exporting"]().startswith("no line of the model")
