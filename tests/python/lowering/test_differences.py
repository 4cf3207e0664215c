from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, mask

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "diff": (
        lambda x, y: (x.diff(), x.diff(2, 0), x.diff(1, 1, prepend=y, append=y)),
        [floats(4, 5), floats(4, 1)],
        [[floats(3, 5), floats(3, 1)]],
    ),
    "no differences": (lambda x, y: x.diff(0, 0, prepend=y, append=y), [floats(4, 5), floats(1, 5)], []),
    "diff of bools": (lambda x: x.diff(), [mask(4, 5)], []),
    "trapezoid": (
        lambda x, y: (torch.trapezoid(x), torch.trapezoid(x, dx=2.0, dim=0), torch.trapezoid(x, y), torch.trapz(x, y)),
        [floats(4, 5), floats(5)],
        [[floats(2, 5), floats(5)]],
    ),
    "trapezoid along another axis": (
        lambda x, y: (torch.trapezoid(x, y, dim=0), torch.trapezoid(x, x * 2 + y[:, None])),
        [floats(4, 5), floats(4)],
        [],
    ),
    "cumulative trapezoid": (
        lambda x, y: (torch.cumulative_trapezoid(x, y), torch.cumulative_trapezoid(x, dx=0.5, dim=0)),
        [floats(4, 5), floats(5)],
        [[floats(2, 5), floats(5)]],
    ),
    "gradient": (
        lambda x: (
            torch.gradient(x),
            torch.gradient(x, spacing=2.0, dim=1),
            torch.gradient(x, spacing=[2.0, 3.0], edge_order=2),
            torch.gradient(x, dim=(0,)),
        ),
        [floats(4, 5)],
        [],
    ),
    "gradient at places": (
        lambda x, a, b: (
            torch.gradient(x, spacing=(a, b)),
            torch.gradient(x, spacing=(b,), dim=1, edge_order=2),
        ),
        [floats(4, 5), torch.tensor([0.0, 1.0, 3.0, 7.0]), torch.tensor([0.0, 2.0, 3.0, 7.0, 8.0])],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.int8], ids=str)
def test_gradients_of_integers_wrap_round_before_they_are_divided(dtype: torch.dtype, check: Check) -> None:
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.max, limits.min, 5, 7, limits.max], dtype=dtype)
    check(lambda x: (torch.gradient(x)[0], torch.gradient(x, spacing=2.0)[0]), [x])


def test_the_middle_has_no_part_in_a_gradient_of_equal_distances(check: Check) -> None:
    check(lambda x: torch.gradient(x)[0], [torch.tensor([1.0, float("inf"), 3.0, 4.0, float("nan"), 6.0])])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64, torch.float32], ids=str)
def test_an_integral_of_even_steps_adds_all_heights_and_takes_half_of_the_ends(
    dtype: torch.dtype, check: Check
) -> None:
    """Integers wrap round in the sum of the two ends alone; infinite ends leave nothing that is a number."""

    def heights(*sizes: int) -> torch.Tensor:
        if dtype.is_floating_point:
            x = torch.randn(sizes)
            x.view(-1)[::7] = float("inf")
            return x
        ends = torch.iinfo(dtype)
        return torch.randint(max(ends.min, -(2**40)), min(ends.max, 2**40), sizes).to(dtype)

    check(
        lambda x: (torch.trapezoid(x, dim=1), torch.trapezoid(x, dx=0.5, dim=0), torch.trapz(x, dx=3)),
        [heights(3, 5)],
        others=[[heights(4, 9)], [heights(1, 2)], [heights(2, 1)]],
    )


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("sizes", [(3,), (3, 2), (3, 1, 2), (3, 4, 1)])
def test_places_of_more_axes_than_the_heights(sizes: tuple[int, ...], axis: int, check: Check) -> None:
    """The axis is the heights', counted from the front of the places."""
    check(lambda y, x: torch.trapezoid(y, x, dim=axis), [floats(3), floats(*sizes)])
