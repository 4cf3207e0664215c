"""What a model asks of its numbers, in a `torch.export.export` of one's own within the guard."""

from __future__ import annotations

import torch
from torch.export import Dim

from .constructs import is_right_on_every_length


class Asks(torch.nn.Module):
    """Each question has another answer of a `torch.SymInt`, and of the `torch.SymBool` that comparing one gives."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        by = 2.0 if isinstance(rows, int) else 3.0
        by += 4.0 if type(rows) is int else 8.0
        match rows:
            case int():
                by += 16.0
            case _:
                by += 32.0
        by += 64.0 if (rows > 1) is True else 128.0
        return x * by


def asks_what_eager_mode_asks() -> None:
    sizes = [(3, 2), (5, 4), (2, 2)]
    is_right_on_every_length(Asks(), lambda *size: [torch.rand(size)], ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},), sizes)


PROGRAMS = {"answers about numbers": asks_what_eager_mode_asks}
