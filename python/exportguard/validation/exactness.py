"""Answers as exact as the original's own: how far each of two is from what the model computes in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..inputs import Leaf
from ..models import ModelCase
from ..models.input_sets import InputSet
from .eager_outputs import run_on, serializers

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_MEAN_FACTOR = 2.0  # other orders of the same sums differ by as much
LARGEST_FACTOR = 4.0  # of the largest error of the original
_SHARE = 0.02  # of the spread of the values; where rounding moves them further nothing can be told by them
_UNITS = 8.0  # of the precision of the original's dtype, if that is more: bfloat16 has 8 bits


def exact_leaves(case: ModelCase, input_set: InputSet) -> list[Leaf]:
    """What the original returns where it computes in float64, from the same weights and inputs.

    A conversion to a narrower dtype, wherever the model has one, is one to float64 then.
    """
    model = copy.deepcopy(case.model).double()
    with serializers():
        inputs = tree_map(_widened, case.inputs(input_set.sizes))
    with in_float64():
        return run_on(replace(case, model=model), inputs).leaves


def is_as_exact(exact: torch.Tensor, original: torch.Tensor, converted: torch.Tensor) -> bool:
    """Whether the converted model's values are as near to the exact ones as the original's.

    What differs by less than the original's own rounding cannot be told from it. Where rounding makes up more than a
    fiftieth of how far the values lie apart, or a sixteenth in bfloat16, the answer is no.

    >>> exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> is_as_exact(exact, exact.float() + 1e-4, exact.float() - 1e-4), is_as_exact(exact, exact.float(), exact + 1e-4)
    (True, False)
    """
    share = max(_SHARE, _UNITS * torch.finfo(original.dtype).eps) if original.is_floating_point() else _SHARE
    truth, own, other = (values.double() for values in (exact, original, converted))
    finite = truth.isfinite() & own.isfinite() & other.isfinite()
    if truth.shape != own.shape or not bool(finite.any()) or not torch.equal(own.isfinite(), other.isfinite()):
        return False
    truth, own, other = truth[finite], (own - truth)[finite].abs(), (other - truth)[finite].abs()
    if _root_mean_square(own) > share * float(truth.std(correction=0)):
        return False
    is_near = _root_mean_square(other) <= _MEAN_FACTOR * _root_mean_square(own)
    return is_near and float(other.max()) <= LARGEST_FACTOR * float(own.max())


def _root_mean_square(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _widened(value: object) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value


class _Float64(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes have no types
    """Every operator that is asked for a narrower dtype of floating numbers gives float64."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if named.get("dtype") in _NARROW:
            named["dtype"] = torch.float64
        if func is torch.ops.aten._grouped_mm.default and _has_rows_in_groups(*args, **named):
            return _products_of_groups(*args, **named)
        return func(*args, **named)


def _has_rows_in_groups(rows: torch.Tensor, matrices: torch.Tensor, offs: Any = None, *_: object, **__: object) -> bool:
    return rows.dim() == 2 and matrices.dim() == 3 and isinstance(offs, torch.Tensor)


def _products_of_groups(
    rows: torch.Tensor,
    matrices: torch.Tensor,
    offs: torch.Tensor,
    bias: torch.Tensor | None = None,
    *_: object,
    **__: object,
) -> torch.Tensor:
    """Rows times the matrix of their group, which ends at its offset; rows behind the last one are 0.

    torch 2.11 to 2.13 has no kernel for it in float64.
    """
    ends = [*offs.tolist(), rows.shape[0]]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    *parts, rest = torch.split(rows, sizes)
    products = [part @ matrix for part, matrix in zip(parts, matrices, strict=True)]
    if bias is not None:
        products = [product + row for product, row in zip(products, bias, strict=True)]
    return torch.cat([*products, rest.new_zeros(rest.shape[0], matrices.shape[2])])


@contextmanager
def in_float64() -> Iterator[None]:
    """What runs computes in float64, and makes tensors of it where no dtype is asked for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(before)
