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


NAN, INF = float("nan"), float("inf")
LISTS = {
    "NaN at its end": [-1.0, 0.0, 0.5, NAN, NAN],
    "NaN alone": [NAN, NAN, NAN],
    "NaN in front": [NAN, 1.0, 2.0, 3.0],
    "no order": [3.0, 1.0, 2.0, 0.0, 2.0, -INF, 5.0],
    "infinities": [-INF, -INF, 0.0, INF],
    "nothing": [],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_halved_as_torch_does(name: str, dtype: torch.dtype, check: Check) -> None:
    listed = torch.tensor(LISTS[name])
    values = torch.tensor([[NAN, -2.0, 0.0, 0.5], [1.0, 2.5, INF, -INF]])
    if not dtype.is_floating_point:
        listed, values = listed.nan_to_num(4, 9, -9), values.nan_to_num(4, 9, -9)
    listed, values = listed.to(dtype), values.to(dtype)
    for right in (False, True):
        check(lambda x, v, right=right: torch.searchsorted(x, v, right=right), [listed, values])  # type: ignore[misc]
        check(lambda v, right=right: torch.bucketize(v, listed, right=right), [values])  # type: ignore[misc]


def test_lists_of_any_length_are_halved(check: Check) -> None:
    lists = [torch.randn(2, count).sort(-1).values for count in (7, 1, 0, 2, 8, 33)]
    check(
        lambda x, v: (torch.searchsorted(x, v), torch.searchsorted(x, x, right=True)),
        [lists[0], torch.randn(2, 3)],
        others=[[each, torch.randn(2, 5)] for each in lists[1:]],
    )
