from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

ORDERS = (0, 1, 2, 3, 0.5, -1, float("inf"), -float("inf"))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_vector_norm(order: float, dtype: torch.dtype, check: Check) -> None:
    x = torch.tensor([[1, -2, 0.5], [-3, 0.25, 4]], dtype=dtype)
    check(
        lambda x: (torch.linalg.vector_norm(x, order), torch.linalg.vector_norm(x, order, dim=1, keepdim=True)),
        [x],
        others=[[x[1:]]],
    )


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_norm_of_one_number_is_its_magnitude(order: float, check: Check) -> None:
    norm = torch.linalg.vector_norm
    check(
        lambda x: (
            norm(x, order, dim=1),
            norm(x, order, dim=1, keepdim=True),
            x.norm(order, dim=1),
            norm(x[0, 0], order),
        ),
        [torch.tensor([[1e30], [1e-30], [-3.0]])],
        others=[[torch.tensor([[-1e-30], [0.0]])]],
    )


def test_norm_by_its_older_names(check: Check) -> None:
    check(lambda x: (x.norm(), x.norm(1, dim=0), x.norm(p="fro", dim=(0, 1)), torch.dist(x, x + 1)), [torch.rand(3, 4)])


def test_norm_in_another_dtype(check: Check) -> None:
    check(lambda x: torch.linalg.vector_norm(x, dtype=torch.float64), [torch.rand(5)])


def test_logsumexp(check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)[1:22].reshape(-1, 3)
    check(lambda x: (x.logsumexp(1), x.logsumexp((0, 1), keepdim=True)), [x], others=[[x[1:]]])


def test_logsumexp_of_integers(check: Check) -> None:
    check(lambda x: torch.logsumexp(x, 0), [torch.tensor([1, 2, 3])])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("first", [-float("inf"), float("inf"), float("nan"), -300.0, 0.0])
def test_logsumexp_behind_an_infinite_number(first: float, dtype: torch.dtype, check: Check) -> None:
    x = torch.tensor([[first, -200, -201.5], [first, first, first], [first, 3, -1]], dtype=dtype)
    check(lambda x: (x.logsumexp(1), x.logsumexp(0), x.logsumexp((0, 1), keepdim=True)), [x], others=[[x - 100]])
