"""Equally right answers: a choice among equal values is free, and ONNX's is the one of the lowest index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _LowestIndexFirst(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes have no types
    had_ties = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        chosen = _CHOICES.get(func)
        if chosen is None:
            return func(*args, **(kwargs or {}))
        values, indices, is_tied = chosen(*args, **(kwargs or {}))
        self.had_ties = self.had_ties or is_tied
        return values, indices


@contextmanager
def lowest_index_first() -> Iterator[_LowestIndexFirst]:
    """Within it, what torch leaves open of `topk` and `sort` is decided as ONNX's TopK decides it.

    torch promises nothing about which of several equal values `topk` takes, so a run within it is a run of the same
    model, as right as any other. Nothing changes where no two values are equal: what differs from both runs is wrong.
    `had_ties` tells whether a choice was open.

    >>> with lowest_index_first() as mode:
    ...     print(torch.zeros(5).topk(2).indices, mode.had_ties)
    tensor([0, 1]) True
    """
    with _LowestIndexFirst() as mode:  # type: ignore[no-untyped-call]
        yield mode


_Choice = tuple[torch.Tensor, torch.Tensor, bool]


def _topk(values: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> _Choice:
    if values.dim() == 0:
        return *torch.topk(values, k, dim, largest, sorted), False
    best, indices, is_tied = _sort(values, dim, largest)
    return best.narrow(dim, 0, k), indices.narrow(dim, 0, k), is_tied


def _sort(values: torch.Tensor, dim: int = -1, descending: bool = False) -> _Choice:
    if values.dim() == 0:
        return *torch.sort(values, dim=dim, descending=descending), False
    found, indices = torch.sort(values, dim=dim, descending=descending, stable=True)
    count = max(found.shape[dim] - 1, 0)
    is_tied = bool((found.narrow(dim, 0, count) == found.narrow(dim, found.shape[dim] - count, count)).any())
    return found, indices, is_tied


_CHOICES: Mapping[Any, Callable[..., _Choice]] = {
    torch.ops.aten.topk.default: _topk,
    torch.ops.aten.sort.default: _sort,
}
