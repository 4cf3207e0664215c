"""One tensor in the place of several inputs, or of an input and a weight: the file has an input for each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import exportguard as eg
from exportguard.inputs import CallInputs

X = torch.randn(2, 3, 8)


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
        return x * 2 + y * 3 + sum((5 + place) * other for place, other in enumerate(rest))


class Nested(nn.Module):
    def forward(self, pairs: Any, named: dict[str, Tensor]) -> list[Tensor]:
        return [key * (place + 2) - value + named["bias"] for place, (key, value) in enumerate(pairs)]


class Written(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * 2 + y


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 8))
        self.register_buffer("kept", torch.randn(2, 3, 8))

    def forward(self, x: Tensor) -> Any:
        return x * 2 + self.weight - self.kept


class Held(nn.Module):
    """Has the tensor in a list, beside what a function around it has."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.several = X, [X, {"x": X}]

    def forward(self, x: Tensor) -> Any:
        return x * 2 + X * 3 + self.own * 5 + self.several[0] * 7


class Case(NamedTuple):
    model: nn.Module
    args: tuple[Any, ...]
    shapes: Any = None


WEIGHTED = Weighted().eval()

CASES: dict[str, Callable[[], Case]] = {
    "two": lambda: Case(Two(), (X, X)),
    "two whose axes change": lambda: Case(Two(), (X, X), ({0: "batch"}, {0: "batch"})),
    "the rest of the arguments": lambda: Case(Two(), (X, X, X, X)),
    "attention to itself": lambda: Case(nn.MultiheadAttention(8, 2, batch_first=True), (X, X, X)),
    "a decoder's text and its memory": lambda: Case(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (X, X)),
    "the layers of a list": lambda: Case(Nested(), ([(X, X)] * 2, {"bias": X})),
    "one that is written": lambda: Case(Written(), (X, X)),
    "a view beside its tensor": lambda: Case(Written(), (X, X[:])),
    "a parameter": lambda: Case(WEIGHTED, (WEIGHTED.weight,)),
    "a part of a parameter": lambda: Case(WEIGHTED, (WEIGHTED.weight[:],)),
    "a buffer": lambda: Case(WEIGHTED, (WEIGHTED.kept,)),
    "a tensor that the model holds": lambda: Case(Held(), (X,)),
    "a buffer without its name": lambda: Case(WEIGHTED, (WEIGHTED.kept.detach(),)),
}


def unlike(args: Any) -> Any:
    """The same arguments with numbers of their own in each tensor."""
    leaves = [leaf + torch.randn_like(leaf) for leaf in map(torch.Tensor.detach, CallInputs(args).leaves())]
    return CallInputs(args).with_leaves(leaves)


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_each_input_is_read(made: Callable[[], Case], strict: bool) -> None:
    model, args, shapes = made()
    model.eval()
    onnx_model = eg.to_onnx(model, args, dynamic_shapes=shapes, options=eg.ExportOptions(strict=strict))
    call = unlike(args)
    feeds = dict(zip([value.name for value in onnx_model.inputs], copy.deepcopy(call.leaves()), strict=True))
    got = onnx_model.run(feeds)
    with torch.no_grad():
        expected = CallInputs((model(*call.args),)).leaves()
    for one, other in zip(expected, got.values(), strict=False):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


def test_the_layers_of_a_cache_are_read_each() -> None:
    class Sums(nn.Module):
        def forward(self, past_key_values: Any) -> list[Tensor]:
            return [layer.keys * (place + 1) - layer.values for place, layer in enumerate(past_key_values.layers)]

    pair = (torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    onnx_model = eg.to_onnx(Sums().eval(), (eg.make_dynamic_cache([pair, pair]),))
    feeds = {value.name: torch.randn(1, 2, 3, 4) for value in onnx_model.inputs}
    key, value, key_1, value_1 = feeds.values()
    first, second = onnx_model.run(feeds).values()
    torch.testing.assert_close(first, key - value)
    torch.testing.assert_close(second, 2 * key_1 - value_1)


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_inputs_that_a_guard_prepares_are_two(strict: bool) -> None:
    with eg.torch_export_patches() as prepare:
        program = torch.export.export(Two(), prepare((X, X)), strict=strict)
    torch.testing.assert_close(program.module()(X, -X), X * 2 - X * 3)


def test_the_tensors_of_the_user_stay_what_they_are() -> None:
    model, args = Written().eval(), (X.clone(),) * 2
    before = args[0].clone()
    eg.to_onnx(model, args)
    assert torch.equal(args[0], before)
    assert args[0] is args[1]


def test_tensors_that_are_there_once_are_not_copied() -> None:
    call = CallInputs((X, X[:], [torch.ones(2)]))
    assert call.apart_from([torch.ones(2)]) is call
