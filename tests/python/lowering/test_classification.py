from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

DTYPES = (*FLOATS, torch.int64, torch.uint8, torch.bool)
FUNCTIONS = {
    name: getattr(torch, name) for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "signbit")
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("opset", [18, 22])
def test_classifies(name: str, opset: int, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in DTYPES]
    others = [[x[:2] for x in inputs], [x[:0] for x in inputs]]
    check(lambda *xs: [FUNCTIONS[name](x) for x in xs], inputs, others=others, opset=opset)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
def test_heaviside_takes_its_value_at_zero(dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    check(torch.heaviside, [x, x.flip(0)])
