"""How the result of an operator looks that lies row by row, without torch's fake kernel.

Sums over axes, copies, choices by indices, and tensors that hold nothing yet: of each the sizes are told by the
expressions of what it is given, and the elements lie side by side. Where the expressions do not say so, torch is asked.

Sizes and dtypes are those of ATen's kernels and of torch._refs and torch._meta_registrations, which agree where this
here answers (torch 2.11 to 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard.repeats.operands import (
    DEVICE,
    DTYPE,
    OFFSET,
    Operand,
    broadcast,
    is_positive,
    rows,
    sizes_of,
    without_modes,
)

_HOST = torch.device("cpu")
_OF_INDICES = (torch.int64, torch.int32)
_KEEPING = (None, torch.contiguous_format, torch.preserve_format)  # what lies row by row


class _Made(NamedTuple):
    """What a new tensor is."""

    sizes: Sequence[Any]
    dtype: torch.dtype
    device: torch.device


class RowByRow:
    """Results of operators that make tensors without gaps."""

    def result(self, mode: Any, call: tuple[Any, Any, Any], operands: Sequence[Operand]) -> Any:
        """The result of a call, a new fake tensor; None where it is left to torch."""
        func, args, kwargs = call
        make = _MAKING.get(func)
        named = {name: value for name, value in kwargs.items() if value is not None and value is not False}
        device = named.pop("device", None)
        if make is None or not named.keys() <= (make.__kwdefaults__ or {}).keys():
            return None
        if make is not _counted and not isinstance(args[0], torch.Tensor):  # a number may stand for a tensor
            return None
        found = make(operands, *args[0 if make is _counted else 1 :], **named)
        if found is None or (device is not None and torch.device(device) != found.device):
            return None
        if not all(map(is_positive, found.sizes)):  # without elements strides are those of one
            return None
        with without_modes():
            model = torch.empty(found.sizes, dtype=found.dtype, device="meta")
        return FakeTensor(mode, model, found.device)


def _lies_in_rows(x: Operand) -> bool:
    return x.strides == rows(x.sizes)


def _empty(operands: Sequence[Operand], size: Sequence[Any], *, dtype: torch.dtype | None = None) -> _Made | None:
    """`new_empty`"""
    if len(operands) != 1 or not all(isinstance(one, int | torch.SymInt) for one in size):
        return None
    (like,) = operands
    return _Made(size, dtype or like.look[DTYPE], like.look[DEVICE])


def _counted(operands: Sequence[Operand], end: Any, *, dtype: torch.dtype | None = None) -> _Made | None:
    """`arange` to a size."""
    if operands or type(end) is not torch.SymInt or not _is_sum_of_sizes(end.node.expr):
        return None
    return _Made([end], dtype or torch.int64, _HOST)


def _is_sum_of_sizes(expression: Any) -> bool:
    """Whether an expression is a symbol that is never 0, or adds some."""
    return all(part.is_Symbol and part.is_positive for part in sympy.Add.make_args(expression))


def _embedded(operands: Sequence[Operand], indices: Any, *options: object) -> _Made | None:
    if len(operands) != 2:
        return None
    weight, places = operands
    if len(weight.sizes) != 2 or not _lies_in_rows(weight) or places.look[DTYPE] not in _OF_INDICES:
        return None
    if weight.look[DEVICE] != places.look[DEVICE]:
        return None
    return _Made([*indices.shape, weight.tensor.shape[1]], weight.look[DTYPE], weight.look[DEVICE])


def _indexed(operands: Sequence[Operand], indices: Sequence[Any]) -> _Made | None:
    """By whole numbers for each axis, which are broadcast as their expressions say."""
    x, *places = operands
    if len(indices) != len(x.sizes) or len(places) != len(indices):
        return None
    if any(one.look[DTYPE] not in _OF_INDICES or one.look[DEVICE] != x.look[DEVICE] for one in places):
        return None
    known = broadcast([one.sizes for one in places])
    return _Made(sizes_of(places, len(known)), x.look[DTYPE], x.look[DEVICE]) if known else None


def _copied(operands: Sequence[Operand], *, memory_format: Any = None) -> _Made | None:
    """`clone`"""
    (x,) = operands
    is_asked = memory_format == torch.contiguous_format
    return _as(x) if is_asked or (memory_format in _KEEPING and _lies_in_rows(x)) else None


def _converted(operands: Sequence[Operand], *, dtype: Any = None, memory_format: Any = None) -> _Made | None:
    """`_to_copy` to another dtype."""
    (x,) = operands
    return _as(x, dtype) if memory_format in _KEEPING and _lies_in_rows(x) and x.look[OFFSET] == 0 else None


def _as(x: Operand, dtype: torch.dtype | None = None) -> _Made:
    return _Made([*x.tensor.shape], dtype or x.look[DTYPE], x.look[DEVICE])


def _reduced(
    operands: Sequence[Operand],
    dim: Sequence[object] | None = None,
    keepdim: object = False,
    *,
    dtype: torch.dtype | None = None,
) -> _Made | None:
    """A mean, a sum or an extreme of floats along some axes."""
    (x,) = operands
    rank = len(x.sizes)
    own: torch.dtype = x.look[DTYPE]
    if not dim or not own.is_floating_point or dtype not in (None, own) or not _lies_in_rows(x):
        return None
    if not all(type(axis) is int and -rank <= axis < rank for axis in dim) or not all(map(is_positive, x.tensor.shape)):
        return None
    axes = {axis % rank for axis in dim if type(axis) is int}
    if len(axes) != len(dim):
        return None
    kept = enumerate(x.tensor.shape)
    sizes = [1 if axis in axes else size for axis, size in kept if keepdim or axis not in axes]
    return _Made(sizes, own, x.look[DEVICE])


_aten = torch.ops.aten
_MAKING: Mapping[Any, Callable[..., _Made | None]] = {
    _aten.new_empty.default: _empty,
    _aten.arange.default: _counted,
    _aten.embedding.default: _embedded,
    _aten.index.Tensor: _indexed,
    _aten.clone.default: _copied,
    _aten._to_copy.default: _converted,
    _aten.mean.dim: _reduced,
    _aten.sum.dim_IntList: _reduced,
    _aten.amax.default: _reduced,
    _aten.amin.default: _reduced,
}
