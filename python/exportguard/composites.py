"""Composite operators written in operators that take symbolic sizes, for the trace of a model and for the conversion.

In torch 2.11 to 2.13 they are made of others in C++, which reads sizes as numbers there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_Made = Callable[..., Any]

# Without annotations in torch 2.11 to 2.13.
_check: _Made = torch._check


def _matrix_axes(x: torch.Tensor, dim: Sequence[int]) -> tuple[int, int]:
    _check(len(dim) == 2, lambda: f"a norm of matrices goes over two axes, got {list(dim)}")
    rows, columns = (axis % x.ndim for axis in dim)
    _check(rows != columns, lambda: f"a norm of matrices goes over two axes, got {list(dim)}")
    return rows, columns


def _of_sums(x: torch.Tensor, order: float, axes: tuple[int, int], keepdim: bool) -> torch.Tensor:
    """The largest sum of magnitudes, or the smallest: of columns for an order of 1, of rows for infinity."""
    added, compared = axes if abs(order) == 1 else reversed(axes)
    sums = x.abs().sum(added, keepdim=True)
    chosen = sums.amax(compared, keepdim=True) if order > 0 else sums.amin(compared, keepdim=True)
    return chosen if keepdim else chosen.squeeze(axes)


def _of_singular_values(x: torch.Tensor, reduce: _Made, axes: tuple[int, int], keepdim: bool) -> torch.Tensor:
    found: torch.Tensor = reduce(torch.linalg.svdvals(x.movedim(axes, (-2, -1))))
    if keepdim:
        for axis in sorted(axes):
            found = found.unsqueeze(axis)
    return found


def matrix_norm(
    self: torch.Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.matrix_norm`: of sums, of singular values, or of all elements."""
    x = self if dtype is None else self.to(dtype)
    axes = _matrix_axes(x, dim)
    if ord == "fro":
        frobenius: torch.Tensor = torch.linalg.vector_norm(x, 2, axes, keepdim)
        return frobenius
    if ord == "nuc":
        return _of_singular_values(x, lambda values: values.sum(-1), axes, keepdim)
    _check(ord in (1, -1, 2, -2, math.inf, -math.inf), lambda: f"there is no norm of matrices of order {ord}")
    order = float(ord)
    if abs(order) != 2:
        return _of_sums(x, order, axes, keepdim)
    return _of_singular_values(x, lambda values: values.amax(-1) if order > 0 else values.amin(-1), axes, keepdim)


def norm(
    self: torch.Tensor,
    ord: float | str | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.norm`: of vectors along one axis or over all of them, of matrices over two."""
    axes = None if ord is None and dim is None else _given_axes(self, dim)
    if ord is None or (not isinstance(ord, str) and axes is not None and len(axes) == 1):
        found: torch.Tensor = torch.linalg.vector_norm(self, 2 if ord is None else ord, axes, keepdim, dtype=dtype)
        return found
    return matrix_norm(self, ord, axes or (), keepdim, dtype=dtype)


def condition_number(self: torch.Tensor, p: float | str | None = None) -> torch.Tensor:
    """`torch.linalg.cond`: the ratio of the singular values, or the norms of the matrix and of its inverse."""
    if p is None or p in (2, -2):
        values = torch.linalg.svdvals(self)
        first, last = values.select(-1, 0), values.select(-1, -1)
        ratio: torch.Tensor = last / first if p == -2 else first / last
        return ratio
    inverse, info = torch.linalg.inv_ex(self)
    inverse = torch.where((info > 0)[..., None, None], math.inf, inverse)
    return matrix_norm(self, p) * matrix_norm(inverse, p)


def _given_axes(x: torch.Tensor, dim: Sequence[int] | None) -> list[int]:
    return list(range(x.ndim)) if dim is None else [axis % x.ndim for axis in dim]


#: By the operator, what it is made of.
COMPOSITES: dict[Any, _Made] = {
    _aten.linalg_matrix_norm.default: matrix_norm,
    _aten.linalg_matrix_norm.str_ord: matrix_norm,
    _aten.linalg_norm.default: norm,
    _aten.linalg_norm.ord_str: norm,
    _aten.linalg_cond.default: condition_number,
    _aten.linalg_cond.p_str: condition_number,
}
