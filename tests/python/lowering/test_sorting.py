from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, integers, mask

if TYPE_CHECKING:
    from conftest import Check

NAN, INFINITY = float("nan"), float("inf")
TIES = torch.tensor([[1.0, 2.0, 1.0, 2.0], [3.0, 3.0, 3.0, 3.0], [0.0, 5.0, -1.0, 2.0]])
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]


def all_distinct(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.unique(x, return_inverse=True, return_counts=True)


def all_runs(x: torch.Tensor, dim: int | None = None) -> tuple[torch.Tensor, ...]:
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)


CASES: dict[str, Case] = {
    "topk of as many as another is long": (
        lambda x, y: x.topk(y.shape[0], 0, largest=False),
        [floats(7, 3), floats(2)],
        [[floats(9, 3), floats(1)], [floats(4, 3), floats(0)]],
    ),
    "topk of a number": (lambda x: x.topk(1, 0), [floats()], []),
    "sort": (
        lambda x: (x.sort(0), x.sort(1, descending=True)),
        [floats(3, 4)],
        [[floats(1, 0)], [floats(0, 3)], [floats(5, 5)]],
    ),
    "sort keeps the order of equal elements": (
        lambda x: (x.sort(stable=True), x.sort(stable=True, descending=True), x.argsort(stable=True, descending=True)),
        [TIES],
        [],
    ),
    "sort of bools": (lambda x: x.sort(stable=True), [mask(3, 4)], []),
    "sort of a number": (lambda x: (x.sort(), x.argsort()), [floats()], []),
    "kthvalue": (lambda x: (x.kthvalue(2), x.kthvalue(1, 0, True)), [floats(3, 4)], [[floats(1, 4)]]),
    "kthvalue of a number": (lambda x: x.kthvalue(1), [floats()], []),
    "unique without a number": (
        all_distinct,
        [torch.tensor([[NAN, 1.0, 2.0, NAN], [1.0, -INFINITY, INFINITY, INFINITY]])],
        [[torch.tensor([[NAN], [NAN]])], [torch.tensor([[0.0], [-0.0]])], [torch.zeros(2, 0)]],
    ),
    "unique": (all_distinct, [integers(3, 5)], [[integers(1, 5)], [integers(0, 5)]]),
    "unique of bools": (lambda x: torch.unique(x, return_inverse=True), [mask(3, 5)], []),
    "unique of a number": (lambda x: torch.unique(x, return_inverse=True), [floats()], []),
    "unique rows": (
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        [integers(4, 2, high=2)],
        [[integers(1, 2)]],
    ),
    "runs": (all_runs, [indices(1, 1, 2, 2, 2, 1)], [[indices(1)], [indices()]]),
    "runs of a matrix": (all_runs, [torch.tensor([[1, 1, 2], [2, 2, 1]])], []),
    "runs of rows": (
        lambda x: all_runs(x, 0),
        [torch.tensor([[1, 2], [1, 2], [1, 1]])],
        [[torch.tensor([[1, 2]])]],
    ),
    "runs of columns": (lambda x: all_runs(x, 1), [torch.tensor([[1, 1, 2], [1, 1, 1]])], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


NAN, INF = float("nan"), float("inf")
SORTS = {
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort descending": lambda x: x.sort(dim=1, stable=True, descending=True),
    "topk": lambda x: x.topk(3, 1).values,
    "topk smallest": lambda x: x.topk(5, 1, largest=False).values,
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "msort": lambda x: x.T.msort(),
    "kthvalue": lambda x: (x.kthvalue(5, 1).values, x.kthvalue(6, 1)),
    "nanmedian": lambda x: x.nanmedian(1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", SORTS)
def test_nan_is_greater_than_every_number(name: str, dtype: torch.dtype, check: Check) -> None:
    top = torch.finfo(dtype).max
    x = torch.tensor([[NAN, 1, top, INF, -INF, -2], [INF, NAN, -1, 3, NAN, top]], dtype=dtype)
    check(SORTS[name], [x], others=[[x[:1]], [x[1:].nan_to_num(0.5)]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts_every_dtype(dtype: torch.dtype, check: Check) -> None:
    x = integers(3, 5, high=5).to(dtype)
    distinct = torch.tensor([[3, 1, 4], [9, 2, 6]]).to(dtype)
    check(
        lambda x, y: (x.sort(stable=True, descending=True), x.msort(), y.topk(2), all_distinct(x)),
        [x, distinct],
    )


ROWS = torch.tensor([[1.0, NAN], [0.0, 2.0], [1.0, NAN], [0.0, 2.0], [3.0, NAN]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_each_slice_with_nan_differs_from_every_other(dim: int, dtype: torch.dtype, check: Check) -> None:
    rows = ROWS.to(dtype)
    check(
        lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True),
        [rows if dim == 0 else rows.T],
        others=[[part if dim == 0 else part.T] for part in (rows[:1], rows[:3], rows[1::2], rows.nan_to_num(7))],
    )
