from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check


FUNCTIONS = {
    "zeros": lambda x: torch.zeros(x.shape[0], 3),
    "ones": lambda x: torch.ones(2, x.shape[0], dtype=torch.int32),
    "full": lambda x: torch.full((x.shape[0],), 2.5),
    "full_bool": lambda x: torch.full((x.shape[0], 2), True),
    "full_of_a_size": lambda x: torch.full((2, 2), x.shape[0]),
    "zeros_like": torch.zeros_like,
    "ones_like": lambda x: torch.ones_like(x, dtype=torch.bool),
    "full_like": lambda x: torch.full_like(x, -1.5),
    "new_zeros": lambda x: x.new_zeros(x.shape[0], 2),
    "new_ones": lambda x: x.new_ones(3, dtype=torch.int64),
    "new_full": lambda x: x.new_full((x.shape[0],), 7),
    "fill": lambda x: torch.fill(x, 3.0),
    "fill_tensor": lambda x: torch.fill(x, x.sum()),
    "empty": lambda x: torch.empty(x.shape[0], 2).shape[0] + torch.ones_like(torch.empty_like(x)),
    "arange": lambda x: torch.arange(x.shape[0]),
    "arange_float": lambda x: torch.arange(x.shape[0], dtype=torch.float32),
    "arange_int32": lambda x: torch.arange(1, x.shape[0], dtype=torch.int32),
    "arange_start": lambda x: torch.arange(2, x.shape[0] + 2),
    "arange_step": lambda x: torch.arange(0, x.shape[0], 2),
    "arange_down": lambda x: torch.arange(x.shape[0], 0, -1),
    "arange_fraction": lambda x: torch.arange(0, 1, 0.1) + x.sum(),
    "arange_to_a_fraction": lambda x: torch.arange(0.5, x.shape[0] + 0.25),
    "linspace": lambda x: torch.linspace(-1, x.shape[0], 7),
    "linspace_one": lambda x: torch.linspace(3, x.shape[0], 1),
    "linspace_none": lambda x: torch.linspace(3, x.shape[0], 0),
    "linspace_integers": lambda x: torch.linspace(0, 10 * x.shape[0], 4, dtype=torch.int64),
    "logspace": lambda x: torch.logspace(0, x.shape[0], 5, base=2.0),
    "eye": lambda x: torch.eye(x.shape[0]),
    "eye_m": lambda x: torch.eye(x.shape[0], 3, dtype=torch.bool),
    "scalar_tensor": lambda x: torch.scalar_tensor(2.5) + x,
    "tensor_of_a_size": lambda x: torch.tensor(x.shape[0]) + 1,
    "tril_indices": lambda x: torch.tril_indices(3, 4, 1) + x.shape[0],
    "triu_indices": lambda x: torch.triu_indices(4, 3, -1, dtype=torch.int32),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_creates(name: str, check: Check) -> None:
    x = torch.rand(4, 3)
    check(FUNCTIONS[name], [x], others=[[x[:2]], [x[:1]], [torch.rand(7, 3)]])


@pytest.mark.parametrize("name", ["zeros", "zeros_like", "full", "arange", "arange_float", "eye"])
def test_creates_nothing_from_no_rows(name: str, check: Check) -> None:
    x = torch.rand(4, 3)
    check(FUNCTIONS[name], [x], others=[[x[:0]]])


@pytest.mark.parametrize("opset", [18, 25])
def test_runs_in_the_oldest_and_the_newest_opset(opset: int, check: Check) -> None:
    check(lambda x: [function(x) for function in FUNCTIONS.values()], [torch.rand(4, 3)], opset=opset)
