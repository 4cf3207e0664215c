"""What operators of a trace are given, as the expressions of their sizes and strides say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

SIZES, STRIDES, OFFSET, DTYPE, DEVICE = range(5)  # of what `keys.appearance` has


class Operand(NamedTuple):
    """A tensor that an operator was given, with what `keys.appearance` says of it."""

    tensor: Any
    look: tuple[Any, ...]

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Numbers and expressions."""
        return self.look[SIZES]  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[Any, ...]:
        """Numbers and expressions."""
        return self.look[STRIDES]  # type: ignore[no-any-return]


@contextmanager
def without_modes() -> Iterator[None]:
    """No mode of the trace, of the model or of a default device sees what is done in the block."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


def rows(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a tensor that lies row by row."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
