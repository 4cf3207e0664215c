from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

LARGEST = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
OPSETS = (18, 22, 25)


def image(spatial: int, batch: int = 2, last: int = 7) -> torch.Tensor:
    return torch.randn(batch, 3, *([6] * (spatial - 1) + [last]))


def others(spatial: int) -> list[list[torch.Tensor]]:
    last = 9 if spatial > 1 else 7  # torch.export fixes the size of the axis under max_pool1d
    return [[image(spatial, 1, last)]]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("ceil_mode", [False, True], ids=("floor", "ceil"))
@pytest.mark.parametrize("spatial", LARGEST)
def test_max_pool(spatial: int, ceil_mode: bool, opset: int, check: Check) -> None:
    check(
        lambda x: LARGEST[spatial](x, 3, 2, 1, ceil_mode=ceil_mode),
        [image(spatial)],
        others=others(spatial),
        opset=opset,
    )


@pytest.mark.parametrize("spatial", LARGEST)
def test_max_pool_positions_count_within_a_channel(spatial: int, check: Check) -> None:
    check(
        lambda x: LARGEST[spatial](x, 3, 2, 1, dilation=2, return_indices=True),
        [image(spatial)],
        others=others(spatial),
    )


@pytest.mark.parametrize("spatial", LARGEST)
def test_pools_without_a_batch(spatial: int, check: Check) -> None:
    check(lambda x: (LARGEST[spatial](x, 2), AVERAGE[spatial](x, 2)), [image(spatial)[0]])


def test_max_pool_of_integers(check: Check) -> None:
    check(lambda x: functional.max_pool2d(x, 2), [torch.arange(-8, 8).reshape(1, 1, 4, 4)])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("counts_padding", [False, True], ids=("elements", "padding too"))
@pytest.mark.parametrize("ceil_mode", [False, True], ids=("floor", "ceil"))
@pytest.mark.parametrize("spatial", AVERAGE)
def test_avg_pool(spatial: int, ceil_mode: bool, counts_padding: bool, opset: int, check: Check) -> None:
    check(
        lambda x: AVERAGE[spatial](x, 3, 2, 1, ceil_mode=ceil_mode, count_include_pad=counts_padding),
        [image(spatial)],
        others=[[image(spatial, 1, 9)]],
        opset=opset,
    )


@pytest.mark.parametrize("ceil_mode", [False, True], ids=("floor", "ceil"))
@pytest.mark.parametrize("spatial", [2, 3])
def test_avg_pool_with_another_divisor(spatial: int, ceil_mode: bool, check: Check) -> None:
    check(
        lambda x: AVERAGE[spatial](x, 3, 2, 1, ceil_mode=ceil_mode, divisor_override=5),
        [image(spatial)],
        others=[[image(spatial, 1, 10)]],
    )
    check(lambda x: AVERAGE[spatial](x, 2, ceil_mode=ceil_mode, divisor_override=5), [image(spatial)[0]])


@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (3, 6, 7)], ids=("batched", "one image"))
def test_average_of_integers_is_cut_off(shape: tuple[int, ...], check: Check) -> None:
    x = torch.randint(-9, 9, shape)
    check(lambda x: functional.avg_pool2d(x, 3, stride=2, padding=1), [x])
    check(lambda x: functional.avg_pool2d(x, 2, divisor_override=3), [x])


@pytest.mark.parametrize("spatial", [2, 3])
def test_max_unpool(spatial: int, check: Check) -> None:
    unpool = functional.max_unpool2d if spatial == 2 else functional.max_unpool3d
    check(lambda x: unpool(*LARGEST[spatial](x, 2, return_indices=True), 2), [torch.randn(2, 3, *[4] * spatial)])


def test_power_average_pool(check: Check) -> None:
    check(lambda x: functional.lp_pool2d(x, 2, 3, 2), [torch.rand(2, 3, 7, 7)])
