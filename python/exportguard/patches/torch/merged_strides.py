"""Results of branches whose strides are products of sizes that may be 0, or that data decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Max, Min

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_TARGET = "torch._higher_order_ops.cond._merge_output"


def merging(original: Callable[..., Any]) -> Callable[..., Any]:
    """What makes one result of those of two branches, which are dense as torch compares them.

    A dense tensor has strides of `max(1, size)`, for an empty one, and torch 2.11 to 2.13 looks for products of sizes
    alone; that of a view which joins axes is the least of several, as `min(6, 6 * size)`. Where a tensor has elements
    these are products, and where it has none no stride is ever used.
    """

    def merge_output(a: Any, b: Any, mode: Any) -> Any:
        tensors = [value for value in (a, b) if isinstance(value, torch.Tensor)]
        if len(tensors) < 2:
            return original(a, b, mode)
        if any(map(_is_of_data, tensors)) and all(map(_is_in_order, tensors)):
            return _merged_in_order(original, a, b, mode)
        if not any(map(_has_limits, tensors)):
            return original(a, b, mode)
        return original(*(_without_limits(tensor, mode) for tensor in tensors), mode)

    return merge_output


def _is_of_data(tensor: torch.Tensor) -> bool:
    """Whether data decide a stride, of which torch asks whether it is 0 or 1."""
    from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

    strides: Sequence[Any] = tensor.stride()
    return any(isinstance(stride, torch.SymInt) and has_free_unbacked_symbols(stride) for stride in strides)


def _is_in_order(tensor: torch.Tensor) -> bool:
    """Whether its elements lie behind each other, the last axis first."""
    sizes = [_product(size) for size in _expressions(tensor.shape)]
    expected = [sympy.Mul(*sizes[axis + 1 :]) for axis in range(len(sizes))]
    strides = [_product(stride) for stride in _expressions(tensor.stride())]
    return not tensor.is_conj() and all(
        sympy.expand(one - other) == 0 for one, other in zip(strides, expected, strict=True)
    )


def _merged_in_order(original: Callable[..., Any], a: torch.Tensor, b: torch.Tensor, mode: Any) -> torch.Tensor:
    """A dense result of both, which torch finds the sizes of where they are not the same expressions."""
    pairs = zip(_expressions(a.shape), _expressions(b.shape), strict=True)
    is_shared = [one == other for one, other in pairs]

    def standing_in(tensor: torch.Tensor) -> torch.Tensor:
        sizes = [1 if shared else size for size, shared in zip(tensor.shape, is_shared, strict=True)]
        with mode:
            return torch.empty_strided(sizes, [0] * len(sizes), dtype=tensor.dtype, device=tensor.device)

    merged = original(standing_in(a), standing_in(b), mode).shape
    sizes = [size if shared else new for size, new, shared in zip(a.shape, merged, is_shared, strict=True)]
    with mode:
        return torch.empty(sizes, dtype=a.dtype, device=a.device)


def _has_limits(tensor: torch.Tensor) -> bool:
    return any(expression.has(Max, Min) for expression in _expressions(tensor.stride()))


def _expressions(sizes: Sequence[Any]) -> list[sympy.Expr]:
    return [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in sizes]


def _without_limits(tensor: torch.Tensor, mode: Any) -> torch.Tensor:
    """A stand-in of the same sizes, with strides that are products of them."""
    strides = [_size(_product(expression), mode) for expression in _expressions(tensor.stride())]
    with mode:
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


def _product(stride: sympy.Expr) -> sympy.Expr:
    """A size or a stride as it is where a tensor has elements."""

    def without_limit(limit: sympy.Expr) -> sympy.Expr:
        others = [argument for argument in limit.args if argument not in (0, 1)]
        return others[0] if len(others) == 1 else limit

    def least(limit: sympy.Expr) -> sympy.Expr:
        return next((one for one in limit.args if all(_is_multiple(other, one) for other in limit.args)), limit)

    stride = stride.replace(lambda part: isinstance(part, Max), without_limit)
    return stride.replace(lambda part: isinstance(part, Min), least)


def _is_multiple(size: sympy.Expr, of: sympy.Expr) -> bool:
    """Whether a size is another one, some times, as sizes that are not 0 are."""
    quotient = size / of if of != 0 else sympy.nan
    return bool(quotient != 0 and quotient.is_integer and quotient.is_nonnegative)


def _size(expression: sympy.Expr, mode: Any) -> Any:
    return int(expression) if expression.is_Integer else mode.shape_env.create_symintnode(expression, hint=None)


PATCHES = (
    Patch(
        name="dense results of branches",
        kind="torch",
        target=_TARGET,
        reason="the results of two branches that are dense, of sizes that may be 0, are refused as slices of others",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_higher_order_ops/cond.py",
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="a, b, mode",
                has=("a_expr = a_stride_expr[_maybe_expr(a_val)]", "a_stride_expr[_maybe_expr(a_val)] = 1"),
            )
        ),
        replace=merging,
    ),
)
