from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

NAMES = "sin cos tan asin acos atan sinh cosh asinh acosh atanh sinc deg2rad rad2deg"
UNARY = {name: getattr(torch, name) for name in NAMES.split()}


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype).clamp(-50, 50) for dtype in (*FLOATS, torch.int32)]
    check(lambda *xs: [UNARY[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs], [x[:0] for x in inputs]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_atan2_knows_all_quadrants(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    check(torch.atan2, [x.unsqueeze(1), x.unsqueeze(0)])
