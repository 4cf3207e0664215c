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


def broadcast(shapes: Sequence[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """What sizes as expressions are broadcast to; None where they do not say it: of literally one entry or equal."""
    rank = max(map(len, shapes))
    axes: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            if size == 1 or size == axes[axis]:
                continue
            if axes[axis] != 1:
                return None
            axes[axis] = size
    return tuple(axes)


def sizes_of(operands: Sequence[Operand], rank: int) -> list[Any]:
    """What the operands are broadcast to."""
    sizes: list[Any] = [1] * rank
    for one in operands:
        for axis, (size, known) in enumerate(
            zip(one.tensor.shape, one.sizes, strict=True), start=rank - len(one.sizes)
        ):
            if known != 1:
                sizes[axis] = size
    return sizes


def is_positive(size: Any) -> bool:
    """Whether a size is never 0, as torch assumes of most symbols."""
    return size > 0 if type(size) is int else bool(size.node.expr.is_positive)
