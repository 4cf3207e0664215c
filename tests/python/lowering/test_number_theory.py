from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import integers

if TYPE_CHECKING:
    from conftest import Check


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
def test_divisors(dtype: torch.dtype, check: Check) -> None:
    low = 0 if dtype == torch.uint8 else -12
    x, y = (integers(n, 4, low=low, high=13).to(dtype) for n in (6, 1))
    check(lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), [x, y], others=[[x[:2], y], [x[:0], y]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nextafter(dtype: torch.dtype, check: Check) -> None:
    limits = torch.finfo(dtype)
    special = [0.0, 1.0, -1.0, 2.0, 0.5, limits.max, limits.tiny, float("inf"), -float("inf"), float("nan")]
    x = torch.tensor([*special, *[1.1**k for k in range(-40, 40)]], dtype=dtype)
    check(lambda x, y: (torch.nextafter(x, y.unsqueeze(1)),), [x, torch.tensor(special, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_frexp(dtype: torch.dtype, check: Check) -> None:
    limits = torch.finfo(dtype)
    x = torch.tensor([0.0, 1, -1, 2, 0.5, 3, -0.3, limits.max, limits.tiny, 1e-20, 8, 1024], dtype=dtype)
    check(torch.frexp, [x])


NUMBERS = ([0.0, 1.0, -2.0, 3.5], [1.0, 1.0, 5.0, -2.5])
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool)


@pytest.mark.parametrize(
    "dtypes", [(a, b) for a in DTYPES for b in DTYPES if a.is_floating_point or b.is_floating_point], ids=str
)
def test_the_next_number_towards_one_of_another_dtype(dtypes: tuple[torch.dtype, torch.dtype], check: Check) -> None:
    x, y = (torch.tensor(numbers).to(dtype) for numbers, dtype in zip(NUMBERS, dtypes, strict=True))
    check(torch.nextafter, [x, y])
