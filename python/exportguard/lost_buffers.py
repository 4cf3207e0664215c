"""Buffers that `forward` gives a tensor which they cannot hold: told once in an export, which has many traces."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

logger = logging.getLogger(__name__)

_TOLD: ContextVar[set[str] | None] = ContextVar("exportguard.lost_buffers", default=None)


@contextmanager
def told_once() -> Iterator[None]:
    """In the block a buffer is told once."""
    token = _TOLD.set(set())
    try:
        yield
    finally:
        _TOLD.reset(token)


def tell_lost(path: str, before: torch.Tensor, now: torch.Tensor) -> None:
    """Warns that a buffer is given other sizes or another dtype, which a file does not return."""
    told = _TOLD.get()
    if told is None or path not in told:
        logger.warning(
            "forward gives the buffer %s other sizes or another dtype: %s %s, before it %s %s; each call of the "
            "program begins with the one before it",
            *(path, now.dtype, tuple(now.shape), before.dtype, tuple(before.shape)),
        )
    if told is not None:
        told.add(path)
