"""Masks that keep the best tokens, below, at and beyond how many those are."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers.models.doge.modeling_doge import DogeAttention

from .constructs import is_right_on_every_length

KEPT = 4


class Mask(torch.nn.Module):
    def forward(self, states: torch.Tensor, kept: torch.Tensor) -> Any:
        return DogeAttention.prepare_dynamic_mask(None, states, kept, keep_window_size=KEPT)  # type: ignore[arg-type]


def inputs(batch: int, length: int) -> list[torch.Tensor]:
    return [torch.randn(batch, length, 8), torch.randn(batch, 2, length)]


def best_tokens() -> None:
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 2: Dim.DYNAMIC})
    is_right_on_every_length(Mask(), inputs, shapes, [(2, 3), (2, 4), (3, 9), (1, 1)])


PROGRAMS = {"the best tokens of a mask": best_tokens}
