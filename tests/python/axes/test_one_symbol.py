"""Axes of one name have one symbol."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import AxisError, ExportOptions, to_onnx
from exportguard.axes.one_symbol import one_symbol_for_a_name
from exportguard.example import Example
from exportguard.inputs import CallInputs
from exportguard.request import ExportRequest
from exportguard.runners.onnxruntime import OrtSession
from exportguard.tracing import exported_module


class Caches(torch.nn.Module):
    """Adds what each layer remembers to its input."""

    def forward(self, x: torch.Tensor, caches: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.cat([cache, x], dim=1) * 2 for cache in caches]


class Compares(torch.nn.Module):
    """Does something else where sizes of one name differ, which nobody asked for."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.shape[0] == y.shape[0] else x


def symbols(model: torch.nn.Module, args: tuple[Any, ...], shapes: Any) -> list[str]:
    """The symbols of all inputs, one after the other."""
    program = exported_module(
        ExportRequest.of(model, args, None, dynamic_shapes=shapes, options=ExportOptions())
    ).program
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    return [str(size) for size in sizes if isinstance(size, torch.SymInt)]


def caches(*lengths: int) -> list[torch.Tensor]:
    return [torch.rand(2, length, 4) for length in lengths]


def test_axes_of_one_name_have_one_symbol_and_others_their_own() -> None:
    shapes = {"x": {0: "batch", 1: "seq"}, "caches": {0: "batch", 1: "past"}}
    found = symbols(Caches(), (torch.rand(2, 3, 4), caches(5, 5, 5)), shapes)
    batch, seq, past = found[:2] + found[3:4]
    assert len({batch, seq, past}) == 3
    assert found == [batch, seq, *[batch, past] * 3]


@pytest.mark.parametrize("past", ["past", Dim("past", min=2, max=64), Dim("past")])
def test_model_takes_every_size_of_a_shared_name(past: Any) -> None:
    model = to_onnx(
        Caches(),
        (torch.rand(2, 3, 4), caches(5, 5)),
        dynamic_shapes={"x": {1: "seq"}, "caches": [{1: past}, {1: past}]},
    )
    assert model.inputs[1].shape == model.inputs[2].shape == (2, "past", 4)
    x, given = torch.rand(2, 7, 4), caches(9, 9)
    expected = Caches()(x, given)
    names = [value.name for value in model.inputs]
    got = model.run(dict(zip(names, [x, *given], strict=True)))
    for one, other in zip(expected, got.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_what_a_model_asks_of_sizes_of_one_name_bounds_nothing() -> None:
    one = to_onnx(Compares(), (torch.rand(3), torch.rand(3)), dynamic_shapes=({0: "n"}, {0: "n"}))
    assert all(axis.kept for axis in one.axes)
    with pytest.raises(AxisError, match="axes that were asked to change"):
        to_onnx(Compares(), (torch.rand(3), torch.rand(3)), dynamic_shapes=({0: "n"}, {0: "m"}))


def test_patches_fit_the_installed_torch_or_say_why_not() -> None:
    call = CallInputs.of(Compares().forward, (torch.rand(3), torch.rand(3)), None)
    patches = one_symbol_for_a_name(Example.of(call, ({0: "n"}, {0: "n"})))
    assert [patch.verdict() for patch in patches] == [("needed", "")] * 2
    assert len(one_symbol_for_a_name(Example.of(call, ({0: "n"}, {0: "m"})))) == 2, "which are told apart"
    assert one_symbol_for_a_name(Example.of(call, ({0: "n"}, None))) == ()


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view(-1, x.shape[2]) + y.view(-1, y.shape[2])


@pytest.mark.parametrize("names", [("a", "b", "c"), (Dim("a"), Dim("b"), Dim("c"))], ids=("names", "dims"))
def test_the_axes_of_a_view_are_not_those_of_what_is_viewed(names: Any) -> None:
    inputs = (torch.randn(6, 6).reshape(2, 3, 6), torch.randn(6, 6).reshape(2, 3, 6))
    asked = dict(enumerate(names))
    model = to_onnx(Joined(), inputs, dynamic_shapes={"x": asked, "y": asked})
    assert [axis.size for axis in model.axes] == ["a", "b", "c"] * 2
    larger = [torch.randn(4, 5, 7), torch.randn(4, 5, 7)]
    session = OrtSession(model.to_bytes())
    (got,) = session.run(dict(zip(session.input_names, larger, strict=True)))
    torch.testing.assert_close(got, Joined()(*larger))
