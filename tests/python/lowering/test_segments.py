from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats, indices

if TYPE_CHECKING:
    from conftest import Check

REDUCTIONS = ["sum", "mean", "max", "min", "prod"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_runs_with_lengths(name: str, check: Check) -> None:
    lengths = indices(2, 0, 3)
    check(
        lambda x, n: (
            torch.segment_reduce(x, name, lengths=n, unsafe=True),
            torch.segment_reduce(x, name, lengths=n, initial=1.5, unsafe=True),
        ),
        [floats(5, 3), lengths],
    )


@pytest.mark.parametrize("name", REDUCTIONS)
def test_runs_between_offsets(name: str, check: Check) -> None:
    offsets = torch.tensor([[0, 2, 3], [0, 1, 3]])
    check(lambda x, o: torch.segment_reduce(x, name, offsets=o, axis=1, unsafe=True), [floats(2, 3, 4), offsets])


@pytest.mark.parametrize("name", ["max", "min", "sum", "mean", "prod"])
def test_runs_of_nothing(name: str, check: Check) -> None:
    def reduced(data: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(data, name, lengths=lengths, initial=1)

    check(reduced, [floats(5), indices(2, 0, 3)], others=[[floats(0), indices(0, 0, 0)]])
