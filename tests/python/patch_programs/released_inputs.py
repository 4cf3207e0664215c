"""An export leaves nothing of its sizes behind."""

from __future__ import annotations

import gc

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard import ExportError, to_onnx


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.cumsum(1)], 1) * x.shape[1]


class Stops(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x.cumsum(1)


def _environments() -> int:
    gc.collect()
    return sum(type(item) is ShapeEnv for item in gc.get_objects())


def lets_go_of_sizes() -> None:
    """Those of failures, too; one may still be in use by what the last of them left."""
    before = _environments()
    for _ in range(4):
        to_onnx(Doubled().eval(), (torch.ones(2, 3),), dynamic_shapes=({1: "n"},))
        with pytest.raises(ExportError):
            to_onnx(Stops().eval(), (torch.ones(2, 3),), dynamic_shapes=({1: "n"},), rewrite=False)
    assert _environments() - before <= 2


PROGRAMS = {"inputs of a trace that has ended": lets_go_of_sizes}
