from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

MEANS_OF_NOTHING = {
    "mean": lambda x: x.mean(),
    "mean of an axis": lambda x: x.mean(0),
    "var": lambda x: x.var(0),
    "loss": lambda x: torch.nn.functional.l1_loss(x, torch.zeros_like(x)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", MEANS_OF_NOTHING)
def test_the_mean_of_nothing_is_nan(name: str, dtype: torch.dtype, check: Check) -> None:
    x = (torch.rand(3, 4) * 60000).to(dtype)
    check(MEANS_OF_NOTHING[name], [x], others=[[x[:0]], [x[:2]]])


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SUMS = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1),
    "sum_keepdim": lambda x: x.sum((0, -1), keepdim=True),
    "sum_dtype": lambda x: x.sum(0, dtype=torch.float64),
    "prod": lambda x: x.prod(),
    "prod_dim": lambda x: x.prod(1, keepdim=True),
    "any": lambda x: x.any(),
    "any_dim": lambda x: x.any(1),
    "any_dims": lambda x: torch.any(x, (0, 1), keepdim=True),
    "all": lambda x: x.all(),
    "all_dim": lambda x: x.all(0),
    "is_all_true": lambda x: torch.ops.aten._is_all_true(x > 0),
    "is_any_true": lambda x: torch.ops.aten._is_any_true(x > 0),
    "count_nonzero": lambda x: torch.count_nonzero(x),
    "count_nonzero_dim": lambda x: torch.count_nonzero(x, (0,)),
}
EXTREMES = {
    "amax": lambda x: x.amax(1),
    "amax_all": lambda x: x.amax(),
    "amin_keepdim": lambda x: x.amin((0, 1), keepdim=True),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max_dim": lambda x: x.max(1),
    "min_dim_keepdim": lambda x: x.min(0, keepdim=True),
    "max_dim_values": lambda x: x.max(1).values,
    "argmax": lambda x: x.argmax(),
    "argmax_keepdim": lambda x: torch.argmax(x, keepdim=True),
    "argmax_dim": lambda x: x.argmax(-1),
    "argmin_dim": lambda x: x.argmin(0, keepdim=True),
    "aminmax": lambda x: torch.aminmax(x),
    "aminmax_dim": lambda x: torch.aminmax(x, dim=1, keepdim=True),
}
MEANS = {
    "mean": lambda x: x.mean(),
    "mean_dim": lambda x: x.mean(1),
    "mean_dims": lambda x: x.mean((0, 1), keepdim=True),
    "mean_dtype": lambda x: x.mean(0, dtype=torch.float64),
    "nansum": lambda x: torch.nansum(x),
    "nansum_dim": lambda x: torch.nansum(x, 1, keepdim=True),
    "nanmean": lambda x: torch.nanmean(x, 0),
}


def matrix(x: torch.Tensor) -> torch.Tensor:
    """Numbers in three columns, so that rows with and without NaN, infinities and ties are among them."""
    return x[: len(x) // 3 * 3].reshape(-1, 3)


@pytest.mark.parametrize("name", SUMS | EXTREMES | MEANS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_floats(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = matrix(numbers(dtype).clamp(-20, 20))
    check((SUMS | EXTREMES | MEANS)[name], [x], others=[[x[2:]], [x[-1:]]])


@pytest.mark.parametrize("name", SUMS | EXTREMES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_of_integers(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = matrix(numbers(dtype))
    check((SUMS | EXTREMES)[name], [x], others=[[x[-1:]]])


@pytest.mark.parametrize("name", [*SUMS, "max", "amin_keepdim"])
def test_of_bools(name: str, check: Check) -> None:
    check((SUMS | EXTREMES)[name], [torch.tensor([[True, False], [True, True]])])


@pytest.mark.parametrize("name", SUMS)
def test_of_no_elements(name: str, check: Check) -> None:
    check(SUMS[name], [torch.rand(4, 3)], others=[[torch.rand(0, 3)]])


@pytest.mark.parametrize(
    "name", ["sum", "prod", "any", "all", "count_nonzero", "max", "min", "argmax", "mean", "amax_all"]
)
def test_of_a_number(name: str, check: Check) -> None:
    check((SUMS | EXTREMES | MEANS)[name], [torch.tensor(2.5)])


def test_along_the_only_axis_of_a_number(check: Check) -> None:
    check(lambda x: (x.sum(0), x.max(0), x.argmax(0), x.amax(-1), x.mean(0), x.any(0)), [torch.tensor(2.5)])


def test_the_mean_over_an_axis_of_size_zero_is_nan(check: Check) -> None:
    check(lambda x: x.mean(1), [torch.rand(3, 0)])


@pytest.mark.parametrize("opset", [18, 25])
def test_runs_in_the_oldest_and_the_newest_opset(opset: int, check: Check, numbers: Numbers) -> None:
    x = matrix(numbers(torch.float32).clamp(-20, 20))
    check(lambda x: [function(x) for function in (SUMS | EXTREMES | MEANS).values()], [x], opset=opset)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32], ids=str)
def test_any_and_all_of_no_axis_ask_each_element(dtype: torch.dtype, check: Check) -> None:
    """Other reductions take an empty list for all axes."""
    x = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    check(lambda x: (x.any(dim=[]), x.all(dim=()), x.any(dim=None), torch.all(x, dim=[], keepdim=True)), [x])
