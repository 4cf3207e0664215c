from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

UNARY = {
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round": torch.round,
    "trunc": torch.trunc,
    "round_decimals": lambda x: torch.round(x, decimals=1),
    "round_negative_decimals": lambda x: torch.round(x, decimals=-1),
}


@pytest.mark.parametrize("name", UNARY)
def test_rounds(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in FLOATS]
    if "decimals" not in name:
        inputs += [numbers(dtype) for dtype in (torch.int64, torch.uint8)]
    check(lambda *xs: [UNARY[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs]])


def test_frac_is_what_truncation_leaves(check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)
    check(torch.frac, [x[~x.isinf()]])


@pytest.mark.parametrize("decimals", [0, 1, 3, -1])
def test_the_special_function_rounds_to_decimals(decimals: int, check: Check) -> None:
    check(lambda x: torch.special.round(x, decimals=decimals), [30 * floats(3, 4)])
