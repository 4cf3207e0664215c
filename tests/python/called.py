"""Modules that call a function, with inputs of the names that a test wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _OfAFunction(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)


class Called(_OfAFunction):
    """With `x`."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class CalledWithTwo(_OfAFunction):
    """With `x` and `y`."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


class CalledWithAll(_OfAFunction):
    """With `inputs_0`, `inputs_1` and so on."""

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)
