"""Losses that ignore a class whose number is a size."""

from __future__ import annotations

import torch
from torch.export import Dim

from .constructs import is_right_on_every_length


class Answers(torch.nn.Module):
    """The loss of heads that answer questions: where an answer begins, or the length of the text for no answer."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self._reduction = reduction

    def forward(self, logits: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        length = logits.size(1)
        starts = starts.clamp(0, length)
        loss = torch.nn.CrossEntropyLoss(ignore_index=length, reduction=self._reduction)
        likely = torch.nn.functional.nll_loss(
            logits.log_softmax(1), starts, ignore_index=length, reduction=self._reduction
        )
        return loss(logits, starts), likely


def answers(batch: int, length: int) -> list[torch.Tensor]:
    starts = torch.arange(batch) % length
    starts[1:2] = length + 3
    return [torch.randn(batch, length), starts]


def ignored_classes() -> None:
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    for reduction in ("mean", "sum", "none"):
        is_right_on_every_length(Answers(reduction), answers, shapes, [(3, 5), (2, 7), (1, 4), (5, 9)])


PROGRAMS = {"ignored classes of symbolic numbers": ignored_classes}
