from __future__ import annotations

from typing import TYPE_CHECKING

import onnxruntime as ort
import pytest
import torch
from conftest import convert, run

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

NAMES = "sin cos tan asin acos atan sinh cosh asinh acosh atanh sinc deg2rad rad2deg"
WIDE = ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc"]
UNARY = {name: getattr(torch, name) for name in NAMES.split()}


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype).clamp(-50, 50) for dtype in (*FLOATS, torch.int32)]
    check(lambda *xs: [UNARY[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs], [x[:0] for x in inputs]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_atan2_knows_all_quadrants(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    check(torch.atan2, [x.unsqueeze(1), x.unsqueeze(0)])


@pytest.mark.parametrize("name", WIDE)
def test_float64_is_not_computed_in_float32(name: str) -> None:
    x = torch.cat([torch.linspace(-1, 1, 401), torch.logspace(-12, 2.8, 200), -torch.logspace(-12, 2.8, 200)]).double()
    function = getattr(torch, name)
    session = ort.InferenceSession(convert(function, [x], [None], None), providers=["CPUExecutionProvider"])
    torch.testing.assert_close(
        torch.from_numpy(run(session, [x])[0]), function(x), rtol=2e-10, atol=1e-300, equal_nan=True
    )
