"""Attention of `torch.nn` with masks of every kind, for queries that see nothing and others, as in eager mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from exportguard import to_onnx

_WIDTH, _HEADS, _LENGTH = 8, 2, 3
_Masks = tuple[Tensor | None, Tensor | None]
_BETWEEN = (
    [[0, 1, 1], [0, 0, 0], [0, 0, 1]],
    [[0, 1, 1], [1, 1, 1], [0, 0, 1]],
)
_PADDING = ([[0, 0, 1], [0, 0, 0]], [[0, 0, 1], [1, 1, 1]])


class _Attention(nn.Module):
    def __init__(self, needs_weights: bool, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=batch_first)
        self.needs_weights = needs_weights

    def forward(self, x: Tensor, between: Tensor | None, padding: Tensor | None) -> Tensor:
        output: Tensor = self.attention(x, x, x, padding, self.needs_weights, between)[0]
        return output


class _Layer(nn.Module):
    def __init__(self, layer: nn.Module, is_causal: bool = False) -> None:
        super().__init__()
        self.layer, self.is_causal = layer, is_causal

    def forward(self, x: Tensor, between: Tensor | None, padding: Tensor | None) -> Tensor:
        is_causal = self.is_causal and between is not None
        output: Tensor = self.layer(x, between, padding, is_causal=is_causal)
        return output


def _layer(heads: int = _HEADS, **options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(_WIDTH, heads, 16, batch_first=True, **options)


def _as(kind: str, hidden: Tensor) -> Tensor | None:
    """The mask as one of a kind; None for a kind that is none."""
    kinds = {
        "bool": hidden,
        "float": torch.where(hidden, -math.inf, 0.0),
        "added": torch.where(hidden, -1.5, 0.0),
        "of heads": hidden.expand(2 * _HEADS, *hidden.shape).clone(),
    }
    return kinds.get(kind)


def _masks(between: str, padding: str) -> list[_Masks]:
    """Of the same kinds each, with and without queries and rows that see nothing."""
    drawn = itertools.product(_BETWEEN, _PADDING)
    return [(_as(between, torch.tensor(a).bool()), _as(padding, torch.tensor(b).bool())) for a, b in drawn]


def _opposite(masks: list[_Masks]) -> list[_Masks]:
    """A mask that adds what the other takes away."""
    return [(a, b.neg()) for a, b in masks if a is not None and b is not None]


def _modules() -> Iterator[tuple[str, nn.Module]]:
    yield "attention", _Attention(needs_weights=False)
    yield "attention with weights", _Attention(needs_weights=True)
    yield "layer", _Layer(_layer())


def _others() -> Iterator[tuple[str, nn.Module]]:
    """Which are taken by no fused kernel, or in another order."""
    yield "attention along the first axis", _Attention(needs_weights=False, batch_first=False)
    yield "layer, norm first", _Layer(_layer(norm_first=True))
    yield "layer of one head", _Layer(_layer(heads=1))
    yield "layer without biases", _Layer(_layer(bias=False))
    yield "layer with gelu", _Layer(_layer(activation="gelu"))
    yield "layer with silu", _Layer(_layer(activation=nn.SiLU()))
    yield "layer with a wrong hint", _Layer(_layer(), is_causal=True)
    hooked = _layer()
    hooked.linear1.register_forward_hook(lambda module, args, output: output)
    yield "layer with a hook", _Layer(hooked)
    yield "encoder", _Layer(nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False))


def _answers_as_eager(name: str, module: nn.Module, masks: list[_Masks]) -> None:
    x = torch.randn(2, _LENGTH, _WIDTH)
    if not getattr(getattr(module, "attention", None), "batch_first", True):
        x = x.transpose(0, 1).contiguous()
    model = to_onnx(module.eval(), (x, *masks[0]))
    for between, padding in masks:
        given = {"x": x, "between": between, "padding": padding}
        (got,) = model.run({key: value for key, value in given.items() if value is not None}).values()
        with torch.no_grad():
            expected = module(x, between, padding)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m: f"{name}: {m}")


def _attention_answers_as_the_kernel_does() -> None:
    kinds = [*itertools.product(("bool", "float", "of heads", ""), ("bool", "float", ""))]
    for (name, module), (between, padding) in itertools.product([*_modules()][:2], kinds):
        if between or padding:
            _answers_as_eager(f"{name}, {between}, {padding}", module, _masks(between, padding))


def _a_layer_answers_as_the_kernel_does() -> None:
    kinds = [*itertools.product(("bool", "added", "of heads", ""), ("bool", "added", ""))]
    (_, layer) = [*_modules()][2]
    for between, padding in kinds:
        if between or padding:
            _answers_as_eager(f"layer, {between}, {padding}", layer, _masks(between, padding))
    _answers_as_eager("layer, opposite masks", layer, _opposite(_masks("added", "added")))
    for name, module in _others():
        _answers_as_eager(name, module, _masks("added", "bool"))
        _answers_as_eager(name, module, _masks("bool", "bool"))


PROGRAMS = {
    "masks of fused attention": _attention_answers_as_the_kernel_does,
    "masks of a fused layer": _a_layer_answers_as_the_kernel_does,
}
