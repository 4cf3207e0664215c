"""How the result of an operator of elements looks, without torch's fake kernel.

A fake kernel compares symbolic sizes and strides, each comparison anew by way of sympy. Of an operator that computes
each element of its own all is read off the expressions as they stand: what is broadcast are sizes of literally 1, and
all others of an axis are one expression. Where that does not settle it, torch is asked.

The layout is that of torch's TensorIterator (aten/src/ATen/TensorIterator.cpp, `compute_shape`, `reorder_dimensions`)
and of `torch._prims_common.compute_elementwise_output_strides`, which agree where this here answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard import _core
from exportguard.repeats.keys import SYMBOLIC
from exportguard.repeats.operands import DEVICE, DTYPE, OFFSET, Operand, broadcast, rows, sizes_of, without_modes

#: Operators that compute each element of its own, and whose fake kernels give the layout and dtype of their kernels
#: (torch 2.11 to 2.13: of those with the tag `pointwise`, `copysign`, `masked_fill`, `pow` of bool, … have others).
_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg", "reciprocal", "round", "rsqrt"),
        *("sigmoid", "sign", "sin", "sqrt", "tanh", "trunc", "gelu", "silu", "mish", "relu", "elu", "leaky_relu"),
        *("hardsigmoid", "softplus", "isinf", "isnan", "logical_not", "bitwise_not"),
        *("add", "sub", "mul", "div", "rsub", "remainder", "fmod", "maximum", "minimum", "atan2"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "where", "clamp", "clamp_min", "clamp_max", "pow"),
    )
)
#: Those whose kernels compute with a symbolic size as with any other number, and ask nothing of it.
_TAKING_SIZES = frozenset(f"aten::{name}" for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"))


class Pointwise:
    """Results of operators of elements, for one trace."""

    def __init__(self) -> None:
        self._is_pointwise: dict[Any, bool] = {}
        self._dtypes: dict[Any, torch.dtype | None] = {}

    def result(self, mode: Any, call: tuple[Any, Any, Any], operands: Sequence[Operand]) -> Any:
        """The result of a call, a new fake tensor; None where it is left to torch."""
        func, args, kwargs = call
        if not operands or not self._is_of_elements(func) or not _are_plain(func, args, kwargs, len(operands)):
            return None
        if not _are_promoted_plainly(func, operands):
            return None
        layout = _layout([one for one in operands if one.sizes])
        dtype = self._dtype(func, args, kwargs) if layout is not None else None
        if layout is None or dtype is None:
            return None
        with without_modes():
            model = layout.make(dtype)
        return FakeTensor(mode, model, operands[0].look[DEVICE])

    def _is_of_elements(self, func: Any) -> bool:
        known = self._is_pointwise.get(func)
        if known is None:
            known = self._is_pointwise[func] = _is_of_elements(func)
        return known

    def _dtype(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype | None:
        """What torch's own kernel gives for two elements of each operand, which asks for nothing symbolic."""
        named = tuple((name, _kind(value)) for name, value in kwargs.items())
        key = (func, tuple(map(_kind, args)), named, torch.get_default_dtype())
        if key not in self._dtypes:
            self._dtypes[key] = _dtype_of_two(func, args, kwargs)
        return self._dtypes[key]


def _is_of_elements(func: Any) -> bool:
    """Whether an operator gives one new tensor, with an element for each of the broadcast operands."""
    schema = func._schema
    if schema.name not in _OPERATORS or schema.is_mutable or func._can_decompose():
        return False
    return [str(one.type) for one in schema.returns] == ["Tensor"]


def _are_plain(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: int) -> bool:
    """Whether the operands are arguments of their own, and nothing else is symbolic, but for a size as a number."""
    values = [*args, *kwargs.values()]
    tensors = sum(isinstance(value, torch.Tensor) for value in values)
    symbolic = {type(value) for value in values} & {*SYMBOLIC}
    return tensors == operands and (symbolic <= {torch.SymInt} if func._schema.name in _TAKING_SIZES else not symbolic)


def _are_promoted_plainly(func: Any, operands: Sequence[Operand]) -> bool:
    """Whether no tensor of a single number is among others of another dtype: it may stand for a Python number.

    And whether what is chosen by is bool: torch's fake kernel takes no bytes; and powers are those of floats.
    """
    name = func._schema.name
    is_choice = name == "aten::where"
    if name == "aten::pow" and not all(one.look[DTYPE].is_floating_point for one in operands):
        return False
    if is_choice and operands[0].look[DTYPE] != torch.bool:
        return False
    values = operands[1:] if is_choice else operands
    return all(one.sizes for one in operands) or len({one.look[DTYPE] for one in values}) == 1


class _Layout(NamedTuple):
    """How the result lies: as an operand of the same sizes, or without gaps in an order of its axes."""

    like: Operand | None
    sizes: Sequence[Any] = ()
    order: Sequence[int] = ()  # from the innermost axis to the outermost

    def make(self, dtype: torch.dtype) -> torch.Tensor:
        """A tensor without data, in memory of its own."""
        if self.like is not None:
            return _core.alike_in_own_memory(self.like.tensor.detach(), dtype)
        strides: list[Any] = [1] * len(self.sizes)
        step: Any = 1
        for axis in self.order:
            strides[axis] = step
            step = step * self.sizes[axis]
        return torch.empty_strided(self.sizes, strides, dtype=dtype, device="meta")


def _layout(operands: Sequence[Operand]) -> _Layout | None:
    """Where the result of operands with axes lies; None where the expressions do not say.

    If all operands lie row by row, so does the result. Else the first decides in which order, if nothing of it is
    broadcast.
    """
    if not operands or any(one.look[DEVICE] != operands[0].look[DEVICE] for one in operands):
        return None
    sizes = broadcast([one.sizes for one in operands])
    if sizes is None or not all(_is_large(size) for one in operands for size in one.tensor.shape):
        return None
    first, rank = operands[0], len(sizes)
    whole = [one for one in operands if one.sizes == sizes and one.look[OFFSET] == 0]
    if all(one.strides == rows(one.sizes) for one in operands):
        return _Layout(whole[0] if whole else None, sizes_of(operands, rank), range(rank - 1, -1, -1))
    order = _order(first) if first.sizes == sizes and 1 not in sizes else None
    if order is None or (rank in (4, 5) and order[0] == 1):  # channels_last, which torch 2.11 says of no result
        return None
    like = first if first.look[OFFSET] == 0 and _is_dense(sizes, first.strides) else None
    return _Layout(like, sizes_of(operands, rank), order)


def _order(operand: Operand) -> list[int] | None:
    """Its axes from the innermost to the outermost, where each stride is a multiple of the one before at any sizes."""
    hints = [stride if type(stride) is int else stride.node._hint for stride in operand.tensor.stride()]
    if not all(type(hint) is int and hint > 0 for hint in hints) or len(set(hints)) < len(hints):
        return None
    order = sorted(range(len(hints)), key=hints.__getitem__)
    for inner, outer in itertools.pairwise(order):
        if not (sympy.sympify(operand.strides[outer]) / operand.strides[inner]).is_integer:
            return None
    return order


def _is_large(size: Any) -> bool:
    """Whether a size is a number, or symbolic and several in the example: torch orders axes by what they are there."""
    if type(size) is int:
        return size > 0
    hint = size.node._hint
    return type(hint) is int and hint > 1


def _is_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the elements lie side by side in some order of the axes, each stride the product of what lies within."""
    left = dict(zip(strides, sizes, strict=True))
    step: Any = 1
    while step in left:
        step = step * left.pop(step)
    return not left and len(set(strides)) == len(sizes)


def _kind(value: Any) -> Any:
    """What the dtype of a result depends on: of a tensor also whether it has axes, of a number its type."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() > 0
    return value if isinstance(value, str) else type(value)


def _dtype_of_two(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype | None:
    def two(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return 2
        is_tensor = isinstance(value, torch.Tensor)
        return torch.ones([2] * min(value.dim(), 1), dtype=value.dtype, device="cpu") if is_tensor else value

    with without_modes():
        try:
            result = func(*map(two, args), **{name: two(value) for name, value in kwargs.items()})
        except RuntimeError:
            return None  # torch's fake kernel says what is wrong with the call
    is_known = isinstance(result, torch.Tensor) and result.shape == (2,)
    return result.dtype if is_known else None
