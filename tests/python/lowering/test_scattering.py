from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, integers, mask

if TYPE_CHECKING:
    from conftest import Check

ROWS = torch.tensor([[0, 1, 2], [2, 0, 4]])

CASES: dict[str, Case] = {
    "scatter of a larger source": (
        lambda x, i, s: x.scatter(1, i, s),
        [floats(4, 5), ROWS, floats(3, 4)],
        [[floats(4, 5), ROWS[:1], floats(2, 4)], [floats(4, 5), ROWS[:0], floats(1, 4)]],
    ),
    "scatter of a number": (
        lambda x, i: (x.scatter(1, i, 2.5), x.scatter(0, i, 1)),
        [floats(4, 5), ROWS[:1]],
        [[floats(3, 5), ROWS[:1]]],
    ),
    "scatter into a number": (lambda x, i: x.scatter(0, i, 2.0), [floats(), torch.tensor(0)], []),
    "scatter into bools": (lambda x, i: x.scatter(0, i, True), [mask(4, 3), ROWS[:1]], []),
    "scatter that adds or multiplies": (
        lambda x, i, s: [x.scatter(1, i, v, reduce=r) for v in (s, 2.0) for r in ("add", "multiply")],
        [floats(4, 5), ROWS, floats(2, 3)],
        [],
    ),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(1, i, s),
        [floats(4, 5), ROWS, floats(3, 4)],
        [[floats(4, 5), ROWS[:0], floats(0, 4)]],
    ),
    "index_add": (
        lambda x, i, s: (x.index_add(1, i, s), x.index_add(1, i, s, alpha=2)),
        [floats(4, 5), indices(0, 3, 0), floats(4, 3)],
        [[floats(2, 5), indices(0, 4), floats(2, 2)]],
    ),
    "index_add of rows": (lambda x, i, s: x.index_add(0, i, s), [floats(4, 5), indices(0, 3, 0), floats(3, 5)], []),
    "index_copy": (lambda x, i, s: x.index_copy(1, i, s), [floats(4, 5), indices(0, 3, 1), floats(4, 3)], []),
    "index_copy into a number": (lambda x, i, s: x.index_copy(0, i, s), [floats(), torch.tensor(0), floats()], []),
    "index_fill": (
        lambda x, i: (x.index_fill(1, i, 2.0), x.index_fill(0, i, torch.tensor(3.0))),
        [floats(4, 5), indices(0, 3, 1)],
        [[floats(6, 5), indices(0, 3, 1)]],
    ),
    "index_fill of a number": (lambda x, i: x.index_fill(0, i, 2.0), [floats(), indices(0)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("includes_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce: str, includes_self: bool, check: Check) -> None:
    def reduced(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(1, i, s, reduce, include_self=includes_self)

    check(reduced, [floats(4, 5), ROWS, floats(2, 3)], others=[[floats(4, 5), ROWS[:0], floats(0, 3)]])
    check(reduced, [integers(4, 5, low=-9), ROWS, integers(2, 3, low=-9)])


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
def test_scatter_reduce_into_a_number(reduce: str, check: Check) -> None:
    check(lambda x, i, s: x.scatter_reduce(0, i, s, reduce), [floats(), torch.tensor(0), floats()])


@pytest.mark.parametrize("includes_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str, includes_self: bool, check: Check) -> None:
    def reduced(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.index_reduce(1, i, s, reduce, include_self=includes_self)

    check(reduced, [floats(4, 5), indices(0, 3, 0), floats(4, 3)])


def test_an_empty_index_of_another_rank_writes_nothing(check: Check) -> None:
    check(lambda x, i: x.scatter(0, i, -1.0), [floats(4), torch.zeros(4, 0, dtype=torch.int64)])
