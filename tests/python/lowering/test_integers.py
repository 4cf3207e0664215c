"""Integers as torch computes them, exact and wrapping around, also where onnxruntime goes through doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

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
