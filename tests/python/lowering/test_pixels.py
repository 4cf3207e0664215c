from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tensors import Case, floats, integers
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), [floats(2, 8, 3, 4)], [[floats(1, 8, 1, 4)]]),
    "pixel_shuffle without a batch": (lambda x: functional.pixel_shuffle(x, 2), [floats(8, 3, 4)], [[floats(8, 1, 4)]]),
    "pixel_shuffle of integers and two batch axes": (
        lambda x: functional.pixel_shuffle(x, 3),
        [integers(2, 2, 9, 3, 4)],
        [[integers(0, 2, 9, 3, 4)]],
    ),
    "pixel_unshuffle": (lambda x: functional.pixel_unshuffle(x, 2), [floats(2, 3, 4, 6)], [[floats(1, 3, 4, 6)]]),
    "channel_shuffle": (lambda x: functional.channel_shuffle(x, 2), [floats(2, 6, 4, 6)], [[floats(0, 6, 4, 6)]]),
    "unfold": (
        lambda x: (functional.unfold(x, (2, 3)), functional.unfold(x, 3, dilation=2, padding=1, stride=2)),
        [floats(2, 3, 7, 8)],
        [[floats(1, 3, 9, 8)]],
    ),
    "unfold without a batch": (lambda x: functional.unfold(x, (2, 3)), [floats(3, 7, 8)], []),
    "fold": (lambda x: functional.fold(x, (4, 5), (2, 3)), [floats(2, 18, 9)], [[floats(1, 18, 9)]]),
    "fold without a batch": (
        lambda x: functional.fold(x, (7, 8), 3, dilation=2, padding=1, stride=2),
        [floats(27, 9)],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
