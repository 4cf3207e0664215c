"""A cache without tokens, which no name asks for: what model and program do differently there is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exportguard import to_onnx
from exportguard.axes.bound import Kind
from exportguard.caches.build import make_dynamic_cache
from exportguard.onnx_model import OnnxModel


class Weighted(torch.nn.Module):
    """Adds up keys, as many as a mask lets through; a question about the past is one that torch does not note."""

    def forward(self, mask: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        keys = past_key_values.layers[0].keys
        scale = self.scale(keys.shape[2], mask)
        total: torch.Tensor = keys.sum((1, 2, 3)) * scale + mask[:, 0]
        return total

    def scale(self, past: int, mask: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class TwiceBehindAPast(Weighted):
    def forward(self, mask: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        return super().forward(mask * 2 if past_key_values.get_seq_length() > 0 else mask, past_key_values)

    def scale(self, past: int, mask: torch.Tensor) -> torch.Tensor:
        return mask.sum(1)


class SquaredBehindAPast(TwiceBehindAPast):
    """Ones are their own squares: only a mask with a zero, or a two, tells."""

    def forward(self, mask: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        is_first = past_key_values.get_seq_length() == 0
        return Weighted.forward(self, mask if is_first else torch.ones_like(mask), past_key_values)


class AsOften(Weighted):
    def scale(self, past: int, mask: torch.Tensor) -> torch.Tensor:
        return mask.sum(1) if past > 0 else mask.sum(1, keepdim=True)[:, 0]


def exported(model: torch.nn.Module) -> OnnxModel:
    cache = make_dynamic_cache([(torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4))])
    inputs = {"mask": torch.ones(2, 3, dtype=torch.int64), "past_key_values": cache}
    shapes = {"mask": {0: "batch", 1: "seq"}, "past_key_values": {0: "batch", 2: "past"}}
    return to_onnx(model.eval(), kwargs=inputs, dynamic_shapes=shapes)


@pytest.mark.parametrize("model", [TwiceBehindAPast, SquaredBehindAPast])
def test_what_differs_without_a_past_is_told(model: type[Weighted], caplog: pytest.LogCaptureFixture) -> None:
    axes = exported(model()).axes
    bounds = {bound.condition for axis in axes for bound in axis.bounds if bound.kind == Kind.EMPTY}
    assert bounds == {"past >= 1"}
    assert all(axis.kept for axis in axes)
    assert "with an empty cache the model does something else (past >= 1)" in "".join(map(str, axes))
    assert "export the first step, without a cache, on its own" in caplog.text


def test_what_is_the_same_is_no_bound() -> None:
    axes = exported(AsOften()).axes
    assert not [bound for axis in axes for bound in axis.bounds if bound.kind == Kind.EMPTY]
