from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Check

FUNCTIONS = (torch.softmax, torch.log_softmax, functional.softmin)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_softmax_along_every_axis(function: Callable[..., torch.Tensor], check: Check) -> None:
    check(
        lambda x: tuple(function(x, axis) for axis in (0, 1, -1)),
        [torch.randn(2, 3, 4)],
        others=[[torch.randn(1, 5, 4)]],
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_softmax_of_one_number(function: Callable[..., torch.Tensor], check: Check) -> None:
    check(lambda x: function(x, 0), [torch.tensor(3.0)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64], ids=str)
def test_softmax_in_the_dtype_asked_for(dtype: torch.dtype, check: Check) -> None:
    x = torch.tensor([[1, 2, 3], [4, 0, 1]]).to(dtype)
    check(lambda x: torch.softmax(x, -1, dtype=torch.float32), [x])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_softmax_of_other_floats(dtype: torch.dtype, check: Check) -> None:
    check(lambda x: torch.softmax(x, -1), [torch.randn(2, 3, dtype=dtype)])


def test_softmax_of_large_numbers_and_of_an_empty_axis(check: Check) -> None:
    check(lambda x: torch.softmax(x, -1), [torch.tensor([[1e30, 0.0], [-1e30, 1e30]])], others=[[torch.rand(2, 0)]])


def test_gradients_of_softmax(check: Check) -> None:
    check(
        lambda g, y: (
            torch.ops.aten._softmax_backward_data(g, y, 1, torch.float32),
            torch.ops.aten._log_softmax_backward_data(g, y, 1, torch.float32),
        ),
        [torch.randn(2, 3), torch.rand(2, 3)],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_softmax_beside_infinity(dtype: torch.dtype, check: Check) -> None:
    rows = torch.tensor([[1.0, float("inf")], [-float("inf"), -float("inf")], [-float("inf"), 2.0]], dtype=dtype)
    check(lambda x: (torch.softmax(x, -1), torch.log_softmax(x, -1)), [rows])
