from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_of_every_dtype(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype)[-6:].reshape(-1, 3) for dtype in DTYPES]
    function = getattr(torch, name)
    check(
        lambda *xs: [function(x, axis) for x in xs for axis in (0, 1)],
        [torch.cat([x, x]) for x in inputs],
        others=[inputs, [x[:0] for x in inputs]],
    )


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8, torch.bool], ids=str)
def test_running_extremes(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = torch.cat([numbers(dtype), numbers(dtype).flip(0)])
    check(lambda x: getattr(torch, name)(x, 0), [x], others=[[x[2:5]]])


def test_logcumsumexp(check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)[1:]
    check(lambda x: torch.logcumsumexp(x, 0), [x.flip(0)], others=[[x[2:]]])


def test_in_another_dtype(check: Check) -> None:
    check(lambda x: (x.cumsum(0, dtype=torch.float32), x.cumprod(0, dtype=torch.float64)), [torch.arange(4)])


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "logcumsumexp"])
def test_of_a_number(name: str, check: Check) -> None:
    check(lambda x: getattr(torch, name)(x, 0), [torch.tensor(2.5)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("opset", [18, None])
def test_products_that_are_large_and_small_in_between(dtype: torch.dtype, opset: int | None, check: Check) -> None:
    ends = torch.finfo(dtype)
    large, small = ends.max / 2, ends.tiny * 2
    numbers = [[large, large, 0.0, 3.0, 1e-3], [small, small, large, large, 100.0], [-2.0, large, large, small, small]]
    x = torch.tensor(numbers, dtype=dtype)
    check(lambda x: (x.cumprod(0), x.cumprod(1)), [x], others=[[x[:2]], [x.T], [x[:0]]], opset=opset)


def test_logcumsumexp_of_many(check: Check) -> None:
    check(lambda x: torch.logcumsumexp(x, 0), [torch.rand(50)], others=[[torch.randn(20000) * 3], [torch.rand(0)]])
