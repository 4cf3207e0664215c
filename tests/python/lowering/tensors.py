"""Inputs of the tests: the same numbers each time, and the type of a table of cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Case = tuple[Callable[..., Any], Sequence[Any], Sequence[Sequence[Any]]]
"""A function, its inputs, and further inputs; axes that differ between them are dynamic."""


def floats(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(7 + sum(sizes)))


def integers(*sizes: int, low: int = 0, high: int = 10) -> torch.Tensor:
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(7 + sum(sizes)))


def mask(*sizes: int) -> torch.Tensor:
    return floats(*sizes) > 0


def nowhere(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.bool)


def indices(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)
