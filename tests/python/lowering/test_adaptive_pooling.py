from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

AVERAGE = {1: functional.adaptive_avg_pool1d, 2: functional.adaptive_avg_pool2d, 3: functional.adaptive_avg_pool3d}
LARGEST = {1: functional.adaptive_max_pool1d, 2: functional.adaptive_max_pool2d, 3: functional.adaptive_max_pool3d}
SIZES = {"one": 1, "a divisor": 3, "uneven": 4, "the same": 6, "larger": 10}


def image(spatial: int, batch: int = 2, first: int = 6) -> torch.Tensor:
    return torch.randn(batch, 3, *([first] + [6] * (spatial - 1)))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("spatial", AVERAGE)
def test_adaptive_avg_pool(spatial: int, size: int, check: Check) -> None:
    check(lambda x: AVERAGE[spatial](x, size), [image(spatial)])
    check(lambda x: AVERAGE[spatial](x, size), [image(spatial)], others=[[image(spatial, 1, 9)]])


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("spatial", LARGEST)
def test_adaptive_max_pool_with_positions(spatial: int, size: int, check: Check) -> None:
    check(lambda x: LARGEST[spatial](x, size, return_indices=True), [image(spatial)])


def test_adaptive_max_pool_takes_the_first_of_equal_elements(check: Check) -> None:
    check(lambda x: functional.adaptive_max_pool2d(x, 4, return_indices=True), [torch.ones(1, 2, 6, 7)])


@pytest.mark.parametrize("spatial", AVERAGE)
def test_adaptive_pools_without_a_batch(spatial: int, check: Check) -> None:
    check(lambda x: (AVERAGE[spatial](x, 3), LARGEST[spatial](x, 4)), [image(spatial)[0]])


@pytest.mark.parametrize("spatial", AVERAGE)
def test_uneven_averages_of_an_empty_batch(spatial: int, check: Check) -> None:
    check(lambda x: AVERAGE[spatial](x, 4), [image(spatial)], others=[[image(spatial, 0)]])


def test_an_axis_that_keeps_its_size(check: Check) -> None:
    check(lambda x: functional.adaptive_avg_pool2d(x, (None, 2)), [image(2)], others=[[image(2, 1, 9)]])


@pytest.mark.parametrize("size", [(2, 3), (3, 4), (5, 1)], ids=str)
def test_of_several_nan_in_a_window_the_last_one_has_the_place(size: tuple[int, int], check: Check) -> None:
    x = torch.randn(2, 3, 5, 7)
    x[x > 0.3] = float("nan")
    check(lambda x: functional.adaptive_max_pool2d(x, size, return_indices=True), [x], others=[[x[:1, :, :4, :6]]])


@pytest.mark.parametrize("spatial", AVERAGE)
def test_the_average_of_nothing_is_no_number(spatial: int, check: Check) -> None:
    x = image(spatial)
    check(lambda x: AVERAGE[spatial](x, 1), [x], others=[[x[..., :0]], [x[:0]]])


@pytest.mark.parametrize("spatial", AVERAGE)
def test_pools_that_leave_nothing(spatial: int, check: Check) -> None:
    x = image(spatial)
    check(lambda x: AVERAGE[spatial](x, 0), [x], others=[[x[..., :1]]])
    if spatial == 2:
        check(lambda x: functional.interpolate(x, scale_factor=0.5, mode="area"), [x], others=[[x[..., :1]]])
