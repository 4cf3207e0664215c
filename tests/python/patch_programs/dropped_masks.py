"""Texts with padding and without, whose mask FSMT drops in the second case."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers.models.fsmt import modeling_fsmt

from .constructs import is_right_on_every_length

_PADDING = 1


class Marked(torch.nn.Module):
    """Scores of tokens, those of padding as low as they get."""

    def forward(self, tokens: torch.Tensor) -> Any:
        mask = modeling_fsmt.make_padding_mask(tokens, _PADDING)
        scores = tokens.to(torch.float32).cumsum(-1)
        return scores if mask is None else scores.masked_fill(mask, torch.finfo(scores.dtype).min)


def texts(batch: int, length: int) -> list[torch.Tensor]:
    """Every second length has padding at its end."""
    tokens = torch.randint(2, 16, (batch, length))
    if length % 2:
        tokens[0, length // 2 :] = _PADDING
    return [tokens]


def padding() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Marked(), texts, (axes,), [(2, 5), (3, 8), (1, 21), (2, 2), (1, 1)])


PROGRAMS = {"masks of padding dropped where there is none": padding}
