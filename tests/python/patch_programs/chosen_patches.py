"""Patches of pictures beside the words of a text: those that a word covers are added to it."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.export import Dim

from .pictures import is_right_on_all


class Combined(torch.nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, pictures: torch.Tensor, words: torch.Tensor, boxes: torch.Tensor, mask: torch.Tensor) -> Any:
        udop = importlib.import_module("transformers.models.udop.modeling_udop")
        sizes = {"num_patches": 3, "max_len": self.length, "image_size": 12, "patch_size": 4}
        return udop.combine_image_text_embeddings(pictures, words.clone(), boxes, None, attention_mask=mask, **sizes)


def _call(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    """The first word of a text has no box."""
    boxes = torch.rand(batch, length, 4).sort(-1).values
    boxes[:, 0] = 0
    mask = torch.ones(batch, length, dtype=torch.int64)
    return torch.randn(batch, 9, 5), torch.randn(batch, length, 5), boxes, mask


def combined() -> None:
    torch.manual_seed(0)
    row = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_all(Combined(0), [_call(2, 4), _call(3, 12), _call(1, 1)], ({0: Dim.DYNAMIC}, row, row, row))
    first = {0: Dim.DYNAMIC}
    is_right_on_all(Combined(20), [_call(2, 4), _call(3, 4)], (first, first, first, first))


PROGRAMS = {"patches that no word covers": combined}
