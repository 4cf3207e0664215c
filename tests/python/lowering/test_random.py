from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
import pytest
import torch
from conftest import convert, run

if TYPE_CHECKING:
    from conftest import Check


# deterministic, so that they can be compared: shapes and bounds of random numbers
FUNCTIONS = {
    "rand": lambda x: torch.rand(x.shape[0], 3).floor(),
    "rand_like": lambda x: torch.rand_like(x) < 1,
    "randn": lambda x: torch.randn(x.shape[0]).isfinite(),
    "randn_like": lambda x: torch.randn_like(x).isfinite(),
    "randint": lambda x: torch.randint(5, (x.shape[0],)) < 5,
    "randint_low": lambda x: torch.randint(-3, -2, (x.shape[0],)),
    "bernoulli": lambda x: torch.bernoulli(torch.ones_like(x)),
    "randperm": lambda x: torch.randperm(x.shape[0]).sort().values,
    "normal": lambda x: torch.normal(x, 0.0) - x,
}


# onnxruntime has no kernels for the random operators of opset 22
OPSETS = [18, 21, 22, 23]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_in_the_right_shape_and_range(name: str, opset: int, check: Check) -> None:
    check(FUNCTIONS[name], [torch.rand(4, 3)], others=[[torch.rand(2, 3)]], opset=opset)


def sample(function: Callable[[torch.Tensor], torch.Tensor], opset: int) -> list[np.ndarray]:
    """Two runs of one session over 20,000 elements."""
    x = torch.full((200, 100), 0.25)
    session = ort.InferenceSession(convert(function, [x], [None], opset), providers=["CPUExecutionProvider"])
    return [run(session, [x])[0].astype(np.float64) for _ in range(2)]


# mean and variance
MOMENTS = {
    "rand": (lambda x: torch.rand_like(x), 1 / 2, 1 / 12),
    "randn": (lambda x: torch.randn(x.shape), 0, 1),
    "bernoulli": (lambda x: torch.bernoulli(x), 1 / 4, 3 / 16),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), 1 / 2, 1 / 4),
    "dropout": (lambda x: torch.dropout(torch.ones_like(x), 0.25, True), 1, 1 / 3),
    "multinomial": (lambda x: torch.multinomial(x[:, :4] * torch.tensor([0.0, 1, 2, 1]), 100, True), 2, 1 / 2),
    "one of each row": (lambda x: torch.multinomial(x * (torch.arange(100) < 2), 1).expand(200, 100), 1 / 2, 1 / 4),
}


@pytest.mark.parametrize("opset", [21, 22])
@pytest.mark.parametrize("name", MOMENTS)
def test_draws_from_the_right_distribution(name: str, opset: int) -> None:
    function, mean, variance = MOMENTS[name]
    first, second = sample(function, opset)
    assert (first != second).any(), "each run draws new numbers"
    assert abs(first.mean() - mean) < 0.12, "200 draws: a deviation of 0.5 / 14, times 3"
    assert abs(first.var() - variance) < 0.12


def test_multinomial_without_replacement_takes_nothing_twice(check: Check) -> None:
    check(lambda x: torch.multinomial(x, 5).sort(1).values, [torch.rand(6, 5) + 0.1])


def test_dropout_in_evaluation_is_the_same(check: Check) -> None:
    check(lambda x: torch.nn.functional.dropout(x, 0.5, False) + 1, [torch.rand(4)])


def test_dropout_in_training_scales_what_it_keeps(check: Check) -> None:
    def is_zero_or_two(x: torch.Tensor) -> torch.Tensor:
        dropped = torch.dropout(x, 0.5, True)
        return dropped * (2 - dropped) == 0

    check(is_zero_or_two, [torch.ones(6)])
