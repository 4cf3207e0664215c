from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_in_the_right_shape_and_range(name: str, check: Check) -> None:
    # 18: onnxruntime has no kernels for the random operators of opset 22
    check(FUNCTIONS[name], [torch.rand(4, 3)], others=[[torch.rand(2, 3)]], opset=18)


def test_dropout_in_evaluation_is_the_same(check: Check) -> None:
    check(lambda x: torch.nn.functional.dropout(x, 0.5, False) + 1, [torch.rand(4)])


def test_dropout_in_training_scales_what_it_keeps(check: Check) -> None:
    def is_zero_or_two(x: torch.Tensor) -> torch.Tensor:
        dropped = torch.dropout(x, 0.5, True)
        return dropped * (2 - dropped) == 0

    check(is_zero_or_two, [torch.ones(6)])
