from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, integers

if TYPE_CHECKING:
    from conftest import Check

LIST = torch.tensor([1.0, 2.0, 2.0, 3.0])
VALUES = torch.tensor([[0.0, 2.0], [2.5, 9.0]])

CASES: dict[str, Case] = {
    "searchsorted": (
        lambda x, v: (
            torch.searchsorted(x, v),
            torch.searchsorted(x, v, right=True),
            torch.searchsorted(x, v, side="right", out_int32=True),
        ),
        [LIST, VALUES],
        [[LIST[:1], VALUES[:1]], [LIST[:0], VALUES[:0]]],
    ),
    "searchsorted in lists": (
        torch.searchsorted,
        [floats(2, 5).sort(-1)[0], floats(2, 3)],
        [[floats(1, 5).sort(-1)[0], floats(1, 3)]],
    ),
    "searchsorted of a number": (lambda x: torch.searchsorted(x, 2), [LIST], []),
    "searchsorted with an order": (
        lambda x, v, s: torch.searchsorted(x, v, sorter=s),
        [torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.5, 9.0]), torch.tensor([1, 2, 0])],
        [],
    ),
    "bucketize": (
        lambda v, x: (torch.bucketize(v, x), torch.bucketize(v, x, right=True, out_int32=True)),
        [VALUES, LIST],
        [[VALUES[:0], LIST]],
    ),
    "bucketize a number": (lambda x: torch.bucketize(2, x), [LIST], []),
    "places of NaN and infinity": (
        lambda v, x: (torch.bucketize(v, x), torch.searchsorted(x, v, right=True)),
        [torch.tensor([math.nan, 0.5, math.inf, -math.inf]), LIST],
        [[torch.tensor([math.nan]), LIST]],
    ),
    "isin": (
        lambda x, t: (torch.isin(x, t), torch.isin(x, t, invert=True), torch.isin(x, 3), torch.isin(2, t)),
        [integers(3, 4), integers(2, 2)],
        [[integers(1, 4), integers(1, 2)], [integers(0, 4), integers(0, 2)]],
    ),
    "isin of floats": (torch.isin, [integers(3, 4).float(), integers(5).float()], []),
    "mode": (lambda x: (x.mode(), x.mode(0), x.mode(1, True)), [integers(3, 7, high=3)], [[integers(1, 7)]]),
    "mode of a number": (lambda x: x.mode(), [floats()], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
