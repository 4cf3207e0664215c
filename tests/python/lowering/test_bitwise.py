from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_of_two_operands(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in (*INTEGERS, torch.bool)]
    function = getattr(torch, name)
    check(lambda *xs: [function(x.unsqueeze(1), x) for x in xs], inputs, others=[[x[:2] for x in inputs]])


def test_of_a_number(check: Check, numbers: Numbers) -> None:
    check(lambda x: (x & 6, 6 | x, x ^ 3, x << 2, x >> 1), [numbers(torch.int64)])


def test_bitwise_not(check: Check, numbers: Numbers) -> None:
    check(lambda *xs: [~x for x in xs], [numbers(dtype) for dtype in (*INTEGERS, torch.bool)])


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    check(getattr(torch, name), [numbers(dtype).unsqueeze(1), torch.arange(7, dtype=dtype)])
