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


INTEGER_POOLS = {
    "greatest": lambda x, ceil: torch.nn.functional.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), ceil),
    "greatest and places": lambda x, ceil: torch.nn.functional.max_pool2d(
        x, (3, 2), (2, 1), 1, (2, 1), ceil, return_indices=True
    ),
    "averages": lambda x, ceil: torch.nn.functional.avg_pool2d(x, (3, 2), (2, 1), (1, 0), ceil, False),
    "averages over padding": lambda x, ceil: torch.nn.functional.avg_pool2d(x, (3, 2), (2, 1), 1, ceil, True),
    "with a divisor": lambda x, ceil: torch.nn.functional.avg_pool2d(x, 3, 2, 1, ceil, True, -5),
}


@pytest.mark.parametrize("ceil", [False, True], ids=["down", "up"])
@pytest.mark.parametrize("name", INTEGER_POOLS)
def test_pools_of_int64_keep_every_digit(name: str, ceil: bool, check: Check) -> None:
    """Neighbours beyond 2 ** 53, which are one float64, and both ends of the dtype."""
    pool = INTEGER_POOLS[name]
    generator = torch.Generator().manual_seed(0)

    def numbers(*sizes: int) -> torch.Tensor:
        small = torch.randint(-4, 5, sizes, generator=generator)
        base = torch.randint(-1, 2, sizes, generator=generator) * (2**62 + 1)
        ends = torch.tensor([2**63 - 1, -(2**63)])[torch.randint(2, sizes, generator=generator)]
        return torch.where(torch.rand(sizes, generator=generator) < 0.1, ends, base + small)

    check(lambda x: pool(x, ceil), [numbers(2, 3, 7, 8)], others=[[numbers(1, 3, 9, 5)], [numbers(3, 3, 4, 11)]])


#: What may be hidden, and what hides it: the lowest number is another one than minus infinity.
HIDING = (-float("inf"), torch.finfo(torch.float32).min)


@pytest.mark.parametrize("ceil_mode", [False, True], ids=("floor", "ceil"))
@pytest.mark.parametrize("hiding", HIDING, ids=str)
@pytest.mark.parametrize("spatial", LARGEST)
def test_max_pool_of_windows_that_are_hidden(spatial: int, hiding: float, ceil_mode: bool, check: Check) -> None:
    def masked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x.masked_fill(x < 0.8, hiding)
        plain = LARGEST[spatial](hidden, 2, ceil_mode=ceil_mode)
        return plain, LARGEST[spatial](hidden, 3, 1, 1), LARGEST[spatial](x, 3, 2, 1, return_indices=True)[0]

    with_nan = image(spatial)
    with_nan[0, 0] = float("nan")
    with_nan[1, 0] = -float("inf")
    check(masked, [image(spatial)], others=[[with_nan], [-image(spatial).abs()], [image(spatial) * -float("inf")]])
