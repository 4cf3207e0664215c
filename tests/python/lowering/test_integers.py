"""Integers as torch computes them, exact and wrapping around, also where onnxruntime goes through doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from called import CalledWithAll
from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

NUMBERS = [0, 1, 2, 3, 7, 100, 2**31, 3037000499, 2**53 + 1, 2**62 + 3, 2**63 - 1]
WIDE = torch.tensor([*NUMBERS, *(-n for n in NUMBERS), -(2**63)])
ROWS, COLUMNS = WIDE.unsqueeze(1), WIDE.unsqueeze(0)

PAIRS: list[Callable[..., torch.Tensor]] = [
    torch.maximum,
    torch.minimum,
    torch.fmax,
    torch.fmin,
    lambda x, y: torch.clamp(x, y, y + 5),
    lambda x, y: torch.div(x, torch.where(y.abs() < 2, 3, y), rounding_mode="floor"),
    lambda x, y: x // 3 + y // 2,
]

ONES: list[Callable[..., Any]] = [
    lambda x: x.sum(),
    lambda x: x.sum(0),
    lambda x: x.sum(1, keepdim=True),
    lambda x: x.sum((0, 1)),
    lambda x: x.prod(),
    lambda x: x.prod(0),
    lambda x: x.prod(1, keepdim=True),
    lambda x: x.cumsum(1),
    lambda x: x.cummax(1),
    lambda x: x.clamp(-(2**40), 2**40),
    lambda x: x.clamp(min=2**40),
    lambda x: x.relu(),
    lambda x: x**5,
    lambda x: x**0,
    lambda x: x.trace(),
    lambda x: torch.einsum("ij,ik->j", x, x),
]


@pytest.mark.parametrize("function", PAIRS, ids=range(len(PAIRS)))
def test_of_two_wide_integers(function: Callable[..., torch.Tensor], check: Check) -> None:
    check(function, [ROWS, COLUMNS], others=[[ROWS[:3], COLUMNS[:, :4]], [ROWS[:0], COLUMNS]])


@pytest.mark.parametrize("function", ONES, ids=range(len(ONES)))
def test_of_wide_integers(function: Callable[..., Any], check: Check) -> None:
    x = WIDE[:20].reshape(4, 5)
    check(function, [x], others=[[x[:3]], [x[:, :1]]])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_powers_wrap_around(dtype: torch.dtype, check: Check) -> None:
    bases = torch.tensor([0, 1, 2, 3, 5, 7, 100]).to(dtype)
    bases = torch.cat([bases, -bases]) if dtype.is_signed else bases
    exponents = torch.tensor([0, 1, 2, 3, 13, 62, 100] + ([-1, -2, -3] if dtype.is_signed else [])).to(dtype)
    check(torch.pow, [bases.unsqueeze(1), exponents], others=[[bases[:2].unsqueeze(1), exponents[:1]]])


def test_empty_sums_and_products(check: Check) -> None:
    check(
        lambda x: (x.sum(), x.sum(0), x.prod(1), x.prod()),
        [torch.ones(3, 4, dtype=torch.int64)],
        others=[[torch.ones(0, 4, dtype=torch.int64)]],
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("bounds", [(2, 8.5, 1.5), (0.9, 8.5, 1), (0, 8.5, 1), (8.5, 1, -1.5)], ids=str)
def test_ranges_of_integers_between_floats(
    dtype: torch.dtype, bounds: tuple[float, float, float], check: Check
) -> None:
    check(lambda x: torch.arange(*bounds, dtype=dtype) + x, [torch.ones(1, dtype=dtype)])


def truncated(a: int, b: int) -> int:
    return a // b if (a < 0) == (b < 0) else -(-a // b)


#: By torch, whose own kernels end the process at the least number by -1, and by Python.
QUOTIENTS: dict[str, tuple[Callable[..., Any], Callable[[int, int], int]]] = {
    "floor": (torch.floor_divide, lambda a, b: a // b),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), truncated),
    "remainder": (torch.remainder, lambda a, b: a % b),
    "fmod": (torch.fmod, lambda a, b: a - b * truncated(a, b)),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8], ids=str)
@pytest.mark.parametrize("quotient", QUOTIENTS)
def test_the_least_number_by_minus_one_ends_no_process(quotient: str, dtype: torch.dtype) -> None:
    function, of_numbers = QUOTIENTS[quotient]
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    a = [least, least + 1, most, -7, 7, 0, least, least]
    example = torch.tensor([7, 5], dtype=dtype), torch.tensor([2, 3], dtype=dtype)
    shapes = ({0: "size"}, {0: "size"})
    model = to_onnx(CalledWithAll(lambda x, y: (function(x, y), function(x, -1))), example, dynamic_shapes=(shapes,))
    names = [value.name for value in model.inputs]
    for b in (-1, 1, 2, -2, 3, most, least):
        given = torch.tensor(a, dtype=dtype), torch.full((len(a),), b, dtype=dtype)
        results = model.run(dict(zip(names, given, strict=True))).values()
        for got, divisor in zip(results, (b, -1), strict=True):
            wrapped = [(of_numbers(x, divisor) - least) % (most - least + 1) + least for x in a]
            assert got.tolist() == wrapped, f"by {divisor}"


BESIDE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "and": lambda x, k: x & k,
    "or": lambda x, k: x | k,
    "xor": lambda x, k: k ^ x,
    "added": lambda x, k: x + k,
    "subtracted": lambda x, k: k - x,
    "times": lambda x, k: x * k,
    "remainder": lambda x, k: x % k,
    "whole quotient": lambda x, k: x // k,
    "at least": lambda x, k: x >= k,
    "less": lambda x, k: x < k,
    "equal": lambda x, k: x == k,
    "other": lambda x, k: x != k,
}


@pytest.mark.parametrize("number", [255, 200, -129, 70001, -40000, 2**31 + 5, 2**53 + 1], ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_a_number_beside_integers_of_fewer_bits_has_its_lowest_ones(
    dtype: torch.dtype, number: int, check: Check
) -> None:
    x = torch.tensor([-128, -1, 0, 1, 5, 127]).to(dtype)
    check(lambda x: [beside(x, number) for beside in BESIDE.values()], [x], others=[[x[:2]]])
