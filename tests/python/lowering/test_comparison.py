from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
BINARY = {name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@pytest.mark.parametrize("name", BINARY)
def test_compares(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in DTYPES]
    check(
        lambda *xs: [BINARY[name](x.unsqueeze(1), x) for x in xs] + [BINARY[name](x, 1) for x in xs],
        inputs,
        others=[[x[:2] for x in inputs], [x[:0] for x in inputs]],
    )


def test_compares_across_dtypes(check: Check) -> None:
    inputs = [torch.tensor([1, 2, 3]), torch.tensor([1.5, 2, 2.5]), torch.tensor([True, False, True])]
    check(lambda i, f, b: (i < f, f < i, i == b, b >= f, i > 1.5, b == 1, f != 2, i < torch.tensor(2.5)), inputs)


def test_compares_with_a_size(check: Check) -> None:
    check(lambda x: x < x.shape[0] - 1, [torch.arange(5)], others=[[torch.arange(3)]])


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose(equal_nan: bool, check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)
    inputs = [x.unsqueeze(1), x * (1 + 1e-6)]
    check(lambda x, y: torch.isclose(x, y, equal_nan=equal_nan), inputs)


def test_isclose_of_integers(check: Check) -> None:
    check(lambda x: torch.isclose(x, x + 1, rtol=0.1), [torch.tensor([1, 5, 10, 100])])
