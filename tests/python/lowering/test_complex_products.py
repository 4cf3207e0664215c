"""Products of complex numbers, of all elements, along an axis, and running ones, of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Check

PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of all": lambda z: z.prod(),
    "along the first axis": lambda z: z.prod(0),
    "along the last axis, which stays": lambda z: z.prod(-1, keepdim=True),
    "running along the first axis": lambda z: z.cumprod(0),
    "running along one between": lambda z: z.cumprod(1),
    "running along the last axis": lambda z: z.cumprod(-1),
    "of one": lambda z: z.sum().prod(0) * z.sum().cumprod(0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_complex_numbers(name: str, dtype: torch.dtype, check: Check) -> None:
    product = PRODUCTS[name]
    sizes = [(2, 3, 4), (4, 1, 2), (1, 5, 3), (0, 3, 4), (2, 0, 4), (2, 3, 0)]
    pairs = [[torch.randn(size, dtype=dtype), torch.randn(size, dtype=dtype)] for size in sizes]
    check(lambda x, y: torch.view_as_real(product(torch.complex(x, y))), pairs[0], others=pairs[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_real_numbers_multiplied_as_complex_ones(dtype: torch.dtype, check: Check) -> None:
    sizes = [(2, 3), (4, 1), (0, 3)]
    inputs = [torch.randint(1, 4, size).to(dtype) for size in sizes]

    def products(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x.prod(0, dtype=torch.complex64), x.prod(dtype=torch.complex64), x.cumprod(1, dtype=torch.complex64)
        return tuple(torch.view_as_real(each) for each in made)

    check(products, [inputs[0]], others=[[x] for x in inputs[1:]])
