"""Tests of what a buffer holds that no call writes."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim

from .constructs import is_right_on_every_length


class Anneals(torch.nn.Module):
    """As EoMT, which masks the attention of as many blocks as a buffer says, and returns what it masked with."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("chances", torch.tensor([0.0, 1.0, 1.0]))

    def forward(self, x: torch.Tensor) -> Any:
        masks: tuple[torch.Tensor, ...] = ()
        for step in range(3):
            if self.chances[step] > 0:
                masks += (x > step,)
            x = x * 2
        return x, *masks


def tests_of_buffers() -> None:
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    is_right_on_every_length(Anneals(), lambda *sizes: [torch.rand(sizes)], shapes, [(2, 5), (3, 7), (1, 1)])


PROGRAMS = {"tests of buffers": tests_of_buffers}
