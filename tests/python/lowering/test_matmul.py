from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

SHAPES = {
    "vectors": ((4,), (4,)),
    "matrix and vector": ((3, 4), (4,)),
    "vector and matrix": ((4,), (4, 3)),
    "batch and vector": ((2, 3, 4), (4,)),
    "vector and batch": ((4,), (2, 4, 3)),
    "batch and matrix": ((2, 3, 4), (4, 5)),
    "two batches": ((2, 3, 4), (2, 4, 5)),
    "batches that broadcast": ((5, 1, 3, 4), (2, 4, 5)),
    "nothing to sum over": ((2, 0), (0, 3)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_matmul_of_every_rank(shapes: tuple[tuple[int, ...], tuple[int, ...]], check: Check) -> None:
    check(torch.matmul, [torch.rand(shapes[0]), torch.rand(shapes[1])])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_products_of_integers_wrap_around(dtype: torch.dtype, check: Check) -> None:
    high = min(torch.iinfo(dtype).max, 1000)
    a, b = torch.randint(0, high, (2, 3), dtype=dtype), torch.randint(0, high, (3, 2), dtype=dtype)
    check(torch.mm, [a, b])
    check(lambda c, a, b: torch.addmm(c, a, b, beta=3, alpha=2), [a[:, :2], a, b])


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=("bias", "no bias"))
def test_linear_of_every_rank(shape: tuple[int, ...], bias: bool, check: Check) -> None:
    check(torch.nn.Linear(4, 5, bias), [torch.rand(shape)])


def test_linear_over_dynamic_and_empty_sequences(check: Check) -> None:
    weight, bias = torch.rand(5, 4), torch.rand(5)
    check(
        functional.linear,
        [torch.rand(2, 3, 4), weight, bias],
        others=[[torch.rand(1, 1, 4), weight, bias], [torch.rand(3, 0, 4), weight, bias]],
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_linear_of_other_floats(dtype: torch.dtype, check: Check) -> None:
    check(torch.nn.Linear(4, 5).to(dtype), [torch.rand(2, 4, dtype=dtype)])


WEIGHTED_SUMS = {
    "addmm": (torch.addmm, (3,), (2, 4), (4, 3)),
    "baddbmm": (torch.baddbmm, (3, 1, 1), (3, 2, 4), (3, 4, 3)),
    "addbmm": (torch.addbmm, (2, 3), (3, 2, 4), (3, 4, 3)),
    "addmv": (torch.addmv, (2,), (2, 4), (4,)),
    "addr": (torch.addr, (2, 4), (2,), (4,)),
}


@pytest.mark.parametrize("beta", [1, 0.5, 0], ids=str)
@pytest.mark.parametrize("case", WEIGHTED_SUMS.values(), ids=WEIGHTED_SUMS)
def test_weighted_sums(case: tuple[Any, ...], beta: float, check: Check) -> None:
    function, *shapes = case
    check(lambda *inputs: function(*inputs, beta=beta, alpha=2), [torch.rand(shape) for shape in shapes])


def test_a_summand_times_zero_is_ignored_even_if_it_is_nan(check: Check) -> None:
    nan = torch.full((3,), float("nan"))
    check(lambda c, a, b: torch.addmm(c, a, b, beta=0), [nan, torch.rand(2, 4), torch.rand(4, 3)])


PRODUCTS = {
    "outer": (torch.outer, (2,), (3,)),
    "inner of matrices": (torch.inner, (2, 3, 4), (5, 4)),
    "inner of vectors": (torch.inner, (4,), (4,)),
    "inner with a number": (torch.inner, (2, 4), ()),
    "vdot": (torch.vdot, (4,), (4,)),
    "vecdot": (torch.linalg.vecdot, (2, 4), (3, 1, 4)),
    "tensordot over two axes": (lambda a, b: torch.tensordot(a, b, dims=([1, -3], [0, 1])), (3, 4, 5), (4, 3, 2)),
    "tensordot over the last axis": (lambda a, b: torch.tensordot(a, b, dims=1), (3, 4, 5), (5, 3, 2)),
    "chain": (lambda a, b: torch.linalg.multi_dot([a, b, a]), (2, 3), (3, 2)),
    "power of 0": (lambda a, b: torch.linalg.matrix_power(a, 0) + b, (2, 3, 3), (3,)),
    "power": (lambda a, b: torch.linalg.matrix_power(a, 5) + b, (2, 3, 3), (3,)),
}


@pytest.mark.parametrize("case", PRODUCTS.values(), ids=PRODUCTS)
def test_other_products(case: tuple[Any, ...], check: Check) -> None:
    function, *shapes = case
    check(function, [torch.rand(shape) for shape in shapes])


def test_bilinear(check: Check) -> None:
    weight, bias = torch.rand(6, 4, 5), torch.rand(6)
    check(
        functional.bilinear,
        [torch.rand(2, 3, 4), torch.rand(2, 3, 5), weight, bias],
        others=[[torch.rand(1, 3, 4), torch.rand(1, 3, 5), weight, bias]],
    )
