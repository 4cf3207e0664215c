from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check

FLOATS = (torch.float32, torch.float16, torch.float64)

SPREADS = {
    "var": lambda x: x.var(),
    "var_dim": lambda x: x.var(1),
    "var_biased": lambda x: x.var(0, unbiased=False),
    "var_correction": lambda x: torch.var(x, (0, 1), correction=2, keepdim=True),
    "std": lambda x: x.std(),
    "std_dim": lambda x: x.std(1, keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "var_mean_all": lambda x: torch.var_mean(x, unbiased=False),
    "std_mean": lambda x: torch.std_mean(x, (0,), correction=0),
}
MEDIANS = {
    "median": lambda x: x.median(),
    "median_dim": lambda x: x.median(1).values,
    "median_indices": lambda x: x.median(0, keepdim=True),
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian_dim": lambda x: x.nanmedian(1),
}


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_spreads(name: str, dtype: torch.dtype, check: Check) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    check(SPREADS[name], [x], others=[[x[:3, :2]], [x[:2, :3]]])


def test_the_variance_of_one_number_is_nan(check: Check) -> None:
    check(lambda x: (x.var(0), x.var(0, unbiased=False)), [torch.rand(4, 3)], others=[[torch.rand(1, 3)]])


@pytest.mark.parametrize("name", MEDIANS)
def test_medians(name: str, check: Check) -> None:
    nan = float("nan")
    x = torch.tensor([[3, 1, 2, 5], [nan, 1, 7, 2], [9, 8, nan, nan], [4, -1, 0, 6]])
    check(MEDIANS[name], [x], others=[[x[3:]], [x[:2, :3]], [x[:, :1]]])


def test_medians_of_integers(check: Check) -> None:
    check(lambda x: (x.median(), x.median(1).values), [torch.tensor([[3, 1, 2], [9, 7, 8]])])


def test_medians_of_nothing(check: Check) -> None:
    check(lambda x: (x.median(), x.nanmedian()), [torch.rand(4, 3)], others=[[torch.rand(0, 3)], [torch.rand(2, 3)]])
