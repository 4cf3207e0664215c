from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_where_of_tensors(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    condition = torch.arange(len(x)) % 2 == 0
    check(torch.where, [condition, x, x.flip(0)], others=[[condition[:2], x[:2], x[:2]], [condition[:0], x[:0], x[:0]]])


def test_where_of_numbers(check: Check) -> None:
    inputs = [torch.tensor([True, False]), torch.rand(2), torch.arange(2)]
    check(
        lambda c, x, i: (
            torch.where(c, x, 2.0),
            torch.where(c, 1, x),
            torch.where(c, i, 0.5),
            torch.where(c, 1.0, 0.0),
        ),
        inputs,
    )


def test_where_broadcasts_and_promotes(check: Check) -> None:
    check(torch.where, [torch.rand(3, 1) > 0.5, torch.arange(4), torch.rand(3, 4, dtype=torch.float64)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_fill(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    mask = torch.arange(len(x)) % 2 == 0
    check(lambda x, m: (x.masked_fill(m, 1), x.masked_fill(m, x[0])), [x, mask], others=[[x[:1], mask[:1]]])


def test_masked_fill_with_minus_infinity(check: Check) -> None:
    check(lambda x, m: x.masked_fill(m, -float("inf")), [torch.rand(2, 3), torch.tensor([True, False, True])])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_to_num(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    check(lambda x: (torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, -3.0)), [numbers(dtype)])


def test_nan_to_num_of_integers_is_the_same(check: Check) -> None:
    check(lambda x: torch.nan_to_num(x) + 1, [torch.arange(3)])
