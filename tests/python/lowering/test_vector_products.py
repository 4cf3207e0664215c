from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, integers

if TYPE_CHECKING:
    from conftest import Check

PRODUCT = "use_mm_for_euclid_dist"

CASES: dict[str, Case] = {
    "cross": (
        lambda x, y: (torch.cross(x, y, 1), torch.linalg.cross(x, y, dim=-2)),
        [floats(4, 3, 2), floats(4, 3, 2)],
        [[floats(0, 3, 2), floats(0, 3, 2)]],
    ),
    "cross that broadcasts": (torch.linalg.cross, [floats(4, 3), floats(1, 3)], []),
    "cross along the first axis of size 3": (lambda x, y: torch.cross(x, y), [floats(3, 4), floats(3, 4)], []),
    "kron": (
        lambda x, y: (torch.kron(x, y), torch.kron(x, y[0]), torch.kron(x[0], y)),
        [floats(2, 3), floats(4, 5)],
        [],
    ),
    "distances of many norms": (
        lambda x, y: [torch.cdist(x, y, p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)],
        [floats(2, 3, 4), floats(2, 5, 4)],
        [[floats(1, 3, 4), floats(1, 5, 4)]],
    ),
    "distances by a product of matrices": (
        lambda x, y: torch.cdist(x, y, compute_mode=PRODUCT),
        [floats(30, 4), floats(5, 4)],
        [[floats(3, 4), floats(1, 4)]],
    ),
    "distances of rows to themselves": (
        lambda x: torch.cdist(x, x),
        [floats(6, 4)],
        [[floats(25, 4)], [floats(1, 4)]],
    ),
    "distances of nothing": (
        lambda x, y: [torch.cdist(x, y, p) for p in (1.0, 2.0, math.inf)],
        [floats(3, 4), floats(5, 4)],
        [[floats(3, 0), floats(5, 0)], [floats(0, 2), floats(5, 2)]],
    ),
    "distances of each pair": (
        lambda x: [torch.nn.functional.pdist(x, p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)],
        [floats(5, 4)],
        [[floats(3, 4)], [floats(1, 4)]],
    ),
    "powers": (
        lambda x: (torch.vander(x), torch.vander(x, 3, True), torch.linalg.vander(x, N=4)),
        [floats(4)],
        [],
    ),
    "powers of integers": (lambda x: (torch.vander(x), torch.linalg.vander(x)), [integers(4)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_nan(p: float, check: Check) -> None:
    """The greatest distance of `cdist` leaves NaN out, that of `pdist` does not."""
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[nan, 1.0, 2.0], [inf, 1.0, 0.5], [nan, nan, nan], [0.5, inf, 2.0]])
    check(
        lambda x, y: (torch.cdist(x, y, p), torch.nn.functional.pdist(x, p)), [x, x.flip(0)], others=[[x[:2], x[1:3]]]
    )


@pytest.mark.parametrize("size", [0, 2, 3, 4])
def test_the_first_axis_of_three_is_that_of_the_run(size: int, check: Check) -> None:
    """Which axis torch takes without one follows from sizes that come later."""
    given = [floats(5, 4, 3), floats(5, 4, 3) + 1]
    check(
        torch.cross,
        given,
        others=[[floats(size, 4, 3), floats(size, 4, 3) + 1], [floats(5, size, 3), floats(5, size, 3)]],
    )
