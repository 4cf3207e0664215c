from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check


def sizes_of_a_number(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    number = x.item()
    torch._check(number > -100)
    torch._check(number < 100)
    return torch.full((), number // 4), torch.full((), -(-number // 3)), torch.zeros(30 + number // 4)


@pytest.mark.parametrize("number", [7, -7, -8, 0])
def test_the_quotient_of_a_negative_number_is_rounded_down(number: int, check: Check) -> None:
    check(sizes_of_a_number, [torch.tensor(5)], others=[[torch.tensor(number)]])


# of x: f32[n, m], with n and m dynamic
FUNCTIONS = {
    "sum": lambda n, m: n + m,
    "difference": lambda n, m: n - m,
    "product": lambda n, m: 2 * n * m,
    "floor_division": lambda n, m: (n * 3 - 20) // 4,
    "remainder": lambda n, m: (n - 20) % 3,
    "power": lambda n, m: n**2,
    "negative": lambda n, m: -n,
    "true_division": lambda n, m: n / m,
    "ceil": lambda n, m: math.ceil(n / 3),
    "floor": lambda n, m: math.floor(n / 3),
    "trunc": lambda n, m: math.trunc(n / -3),
    "int": lambda n, m: torch.sym_int(n / 3),
    "float": lambda n, m: torch.sym_float(n) * 1.5,
    "sqrt": lambda n, m: torch._sym_sqrt(n),
    "max": lambda n, m: torch.sym_max(n, 5),
    "min": lambda n, m: torch.sym_min(n, m),
    "choice": lambda n, m: torch.sym_ite(n >= 5, n, m),
    "sum_of_many": lambda n, m: torch.sym_sum([n, m, n, 3]),
    "round": lambda n, m: round(n / 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_computes_with_sizes(name: str, check: Check) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(2) + FUNCTIONS[name](x.shape[0], x.shape[1])

    check(function, [torch.rand(9, 5)], others=[[torch.rand(6, 5)], [torch.rand(7, 3)]])


def test_reads_sizes_numel_and_strides(check: Check) -> None:
    check(
        lambda x: x.new_zeros(1) + x.size(1) + x.numel() * 1000 + x.stride(0) * 100,
        [torch.rand(4, 3, 2)],
        others=[[torch.rand(4, 5, 2)]],
    )


def test_returns_sizes(check: Check) -> None:
    check(lambda x: (x.shape[0], x.shape[0] + 1, x.shape[0] > 2), [torch.rand(4)], others=[[torch.rand(9)]])


def test_a_number_out_of_a_tensor_is_read_at_run_time(check: Check) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        count = x[0].item()
        torch._check(count >= 0)
        return torch.arange(count) * 2

    check(function, [torch.tensor([4, 1])], others=[[torch.tensor([7, 1])], [torch.tensor([0, 1])]])


def test_a_float_out_of_a_tensor_is_read_at_run_time(check: Check) -> None:
    check(lambda x: torch.zeros(2) + x.sum().item(), [torch.rand(3)], others=[[torch.rand(5)]])
