"""How the result of an operator that moves, joins or splits axes looks, without torch's fake kernel.

Those kernels are Python that asks of symbolic sizes and strides what their expressions answer: whether the elements
that are to be seen anew lie row by row, and how many there are. Where the expressions do not settle it, torch is asked.

Sizes and strides are those of ATen (aten/src/ATen/native/TensorShape.cpp) and of torch._refs, which agree where this
here answers (torch 2.11 to 2.13).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard import _core
from exportguard.repeats.operands import DEVICE, DTYPE, Operand, is_positive, rows, without_modes

_END = 2**63 - 1  # of a slice that has none


class _View(NamedTuple):
    """Where a tensor sees the memory of another one."""

    sizes: Sequence[Any]
    strides: Sequence[Any]
    offset: Any


class MovedAxes:
    """Results of operators that give the elements of their operands other places."""

    def result(self, mode: Any, call: tuple[Any, Any, Any], operands: Sequence[Operand]) -> Any:
        """The result of a call, a new fake tensor; None where it is left to torch."""
        func, args, kwargs = call
        if kwargs or not operands:
            return None
        if func is torch.ops.aten.cat.default:
            return _joined(mode, operands, *args)
        view = _VIEWS.get(func)
        if view is None or len(operands) > 1:
            return None
        (seen,) = operands
        found = view(seen, *args[1:])
        if found is None:
            return None
        with without_modes():
            model = _core.seen_as(seen.tensor, found.sizes, found.strides, found.offset)
        return FakeTensor(mode, model, seen.look[DEVICE])


def _axis(axis: object, rank: int) -> int | None:
    """Counted from the first; None for what is no axis."""
    return axis % rank if type(axis) is int and -rank <= axis < rank else None


def _unsqueezed(x: Operand, dim: object) -> _View | None:
    sizes, strides = list(x.tensor.shape), list(x.tensor.stride())
    axis = _axis(dim, len(sizes) + 1)
    if axis is None:
        return None
    stride = sizes[axis] * strides[axis] if axis < len(sizes) else 1
    sizes.insert(axis, 1)
    strides.insert(axis, stride)
    return _View(sizes, strides, x.tensor.storage_offset())


def _permuted(x: Operand, dims: Sequence[object]) -> _View | None:
    sizes, strides = x.tensor.shape, x.tensor.stride()
    order = [_axis(dim, len(sizes)) for dim in dims]
    if len(order) != len(sizes) or {*order} != {*range(len(sizes))}:
        return None
    axes = [axis for axis in order if axis is not None]
    return _View([sizes[axis] for axis in axes], [strides[axis] for axis in axes], x.tensor.storage_offset())


def _transposed(x: Operand, dim0: object, dim1: object) -> _View | None:
    rank = len(x.sizes)
    first, second = _axis(dim0, rank), _axis(dim1, rank)
    if first is None or second is None:
        return None
    order = [*range(rank)]
    order[first], order[second] = second, first
    return _permuted(x, order)


def _expanded(x: Operand, sizes: Sequence[Any]) -> _View | None:
    """To numbers along axes of a single entry; all other axes, and no others, are as they were."""
    own, strides = list(x.tensor.shape), list(x.tensor.stride())
    if len(sizes) != len(own):
        return None
    for axis, (size, known) in enumerate(zip(sizes, x.sizes, strict=True)):
        if type(size) is int and size > 1 and known == 1:
            own[axis], strides[axis] = size, 0
        elif not (type(size) is int and size == -1) and _expression(size) != known:
            return None
    return _View(own, strides, x.tensor.storage_offset())


def _sliced(x: Operand, dim: object = 0, start: Any = None, end: Any = None, step: object = 1) -> _View | None:
    """Of all of an axis, or between two numbers where its size is a number."""
    sizes, strides = list(x.tensor.shape), x.tensor.stride()
    axis = _axis(dim, len(sizes))
    start, end = 0 if start is None else start, _END if end is None else end
    numbers = all(type(number) is int for number in (start, end))
    if axis is None or step != 1 or not numbers:
        return None
    if (start, end) != (0, _END):
        if type(sizes[axis]) is not int:
            return None
        start, end, _ = slice(start, end).indices(sizes[axis])
        sizes[axis] = max(end - start, 0)
    return _View(sizes, strides, x.tensor.storage_offset() + start * strides[axis])


def _reshaped(x: Operand, sizes: Sequence[Any]) -> _View | None:
    """To its own sizes; or, where it lies row by row, to those that have as many elements, as the expressions stand."""
    own = x.tensor.shape
    if tuple(map(_expression, sizes)) == x.sizes and all(map(_is_several, own)):
        return _View(own, x.tensor.stride(), x.tensor.storage_offset())
    found = _completed(x, sizes) if x.strides == rows(x.sizes) else None
    if found is None or not all(map(is_positive, found)):  # where there may be none, a stride is that of one
        return None
    return _View(found, rows(found), x.tensor.storage_offset())


def _completed(x: Operand, sizes: Sequence[Any]) -> list[Any] | None:
    """The sizes, with a number for a -1."""
    open_axes = [axis for axis, size in enumerate(sizes) if type(size) is int and size < 0]
    given = [size for axis, size in enumerate(sizes) if axis not in open_axes]
    there, asked = _product(x.sizes), _product(map(_expression, given))
    if not open_axes:
        return [*sizes] if there == asked else None
    left = there / asked if len(open_axes) == 1 and -1 in sizes and asked.is_positive else None
    if left is None or not left.is_Integer:
        return None
    (axis,) = open_axes
    return [*sizes[:axis], int(left), *sizes[axis + 1 :]]


def _expression(size: Any) -> Any:
    return size if type(size) is int else size.node.expr


def _product(sizes: Iterable[Any]) -> sympy.Expr:
    return reduce(operator.mul, sizes, sympy.Integer(1))


def _is_several(size: Any) -> bool:
    """Whether there are several entries, in the example if the size is symbolic: of one the stride may be any."""
    if type(size) is int:
        return size > 1
    hint = size.node._hint
    return type(hint) is int and hint > 1


def _joined(mode: Any, operands: Sequence[Operand], tensors: Sequence[Any], dim: object = 0) -> Any:
    """Of tensors that differ along one axis alone. The result lies row by row, but where all are `channels_last`."""
    first = operands[0]
    rank = len(first.sizes)
    axis = _axis(dim, rank)
    if axis is None or rank < 2 or len(tensors) != len(operands):
        return None
    if all(map(_may_be_channels_last, operands)):
        return None
    for other in operands:
        if (other.look[DTYPE], other.look[DEVICE]) != (first.look[DTYPE], first.look[DEVICE]):
            return None
        if len(other.sizes) != rank or _without(other.sizes, axis) != _without(first.sizes, axis):
            return None
    sizes = list(first.tensor.shape)
    sizes[axis] = reduce(operator.add, (other.tensor.shape[axis] for other in operands))
    with without_modes():
        model = torch.empty(sizes, dtype=first.look[DTYPE], device="meta")
    return FakeTensor(mode, model, first.look[DEVICE])


def _may_be_channels_last(x: Operand) -> bool:
    """Whether the channels (of which there are several) may be the innermost axis, as in `suggest_memory_format`."""
    if len(x.sizes) not in (4, 5):
        return False
    several = type(x.sizes[1]) is int and x.sizes[1] > 1
    return not (several and x.strides[-1] == 1 and 1 not in x.sizes)


def _without(sizes: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*sizes[:axis], *sizes[axis + 1 :])


_VIEWS: Mapping[Any, Callable[..., _View | None]] = {
    torch.ops.aten.unsqueeze.default: _unsqueezed,
    torch.ops.aten.permute.default: _permuted,
    torch.ops.aten.transpose.int: _transposed,
    torch.ops.aten.expand.default: _expanded,
    torch.ops.aten.slice.Tensor: _sliced,
    torch.ops.aten.view.default: _reshaped,
    torch.ops.aten._unsafe_view.default: _reshaped,
}
