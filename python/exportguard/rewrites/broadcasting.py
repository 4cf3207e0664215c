"""What has axes in a graph and none in Python before the first step of a loop: `total = 0`, then `total + row`.

The tensor that stands for such a number has the shape that a step gives it. Beside a tensor that has all axes of the
result nothing comes of that; what is made of it without one is followed, and refused where its shape matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_NUMBER = "exportguard_number_before"  # where it is a number of Python: "`total` in line 3"
_SHAPE = "exportguard_shape_before"  # that a tensor may have in Python, with the same


def spread(tensor: torch.Tensor, source: str) -> torch.Tensor:
    """Marks a tensor with axes that on some path is a number of Python."""
    if source and tensor.dim():
        setattr(tensor, _NUMBER, source)
    return tensor


def source_of(item: object) -> str:
    """Which number of Python a tensor with axes may be; empty for all others."""
    return getattr(item, _NUMBER, "") if isinstance(item, torch.Tensor) else ""


def note_shape(result: object, operands: Sequence[torch.Tensor]) -> None:
    """Marks what an operator made element by element of such tensors and others, unless these have all of its axes."""
    if not isinstance(result, torch.Tensor):
        return
    found = next(filter(None, map(_source, operands)), "")
    shapes = [_shape(operand) for operand in operands]
    _forget(result)
    if found and not _covers(shapes, result.shape):
        rank = max(map(len, shapes))
        setattr(result, _SHAPE, (_joined(shapes, result.shape[result.dim() - rank :]), found))


def require_shapes(tensors: Iterable[object]) -> None:
    """Refuses tensors whose shape is another one in Python before the first step of a loop.

    Raises:
        RewriteError: with the line and what to write.
    """
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and hasattr(tensor, _SHAPE):  # a proxy has every attribute
            raise _refusal(getattr(tensor, _SHAPE)[1], line_now(), "what is made of it here has other axes then")


def require_axes(tensors: Iterable[object]) -> None:
    """Refuses to return tensors that may be numbers of Python, or of another shape.

    Raises:
        RewriteError: with the variable and what to write.
    """
    for tensor in tensors:
        source = _source(tensor) if isinstance(tensor, torch.Tensor) else ""
        if source:
            raise _refusal(source, "", "the model returns it, or what has its axes")


def _refusal(source: str, where: str, why: str) -> RewriteError:
    return RewriteError(
        f"{where}{': ' if where else ''}{source} is a number before the loop and a tensor with axes behind a step; "
        f"where no step was taken yet it is the number, and {why}: give it the shape and dtype that a step makes "
        "before the loop, as by torch.zeros(…)"
    )


def _source(tensor: torch.Tensor) -> str:
    return getattr(tensor, _SHAPE)[1] if hasattr(tensor, _SHAPE) else source_of(tensor)


def _forget(tensor: torch.Tensor) -> None:
    """What was changed in place is what the operator made of it."""
    if hasattr(tensor, _SHAPE):
        delattr(tensor, _SHAPE)


def _shape(tensor: torch.Tensor) -> Sequence[Any]:
    if source_of(tensor):
        return ()
    shape: Sequence[Any] = getattr(tensor, _SHAPE)[0] if hasattr(tensor, _SHAPE) else tensor.shape
    return shape


def _covers(shapes: Sequence[Sequence[Any]], result: Sequence[Any]) -> bool:
    """Whether tensors of these shapes have all axes of a result."""
    rank = max(map(len, shapes))
    return rank == len(result) and all(
        statically_known_true(made == size) for made, size in zip(_joined(shapes, result), result, strict=True)
    )


def _joined(shapes: Sequence[Sequence[Any]], result: Sequence[Any]) -> Sequence[Any]:
    """For each axis of a result its size if one of the shapes has it, else 1."""
    made = []
    for behind in range(len(result), 0, -1):
        sizes = [shape[-behind] for shape in shapes if len(shape) >= behind]
        made.append(next((size for size in sizes if statically_known_true(size == result[-behind])), 1))
    return made


__all__ = ["note_shape", "require_axes", "require_shapes", "source_of", "spread"]
