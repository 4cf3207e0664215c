from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers


DTYPES = (torch.bool, torch.int64, torch.float32, torch.uint8)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_takes_numbers_for_flags(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in DTYPES]
    function = getattr(torch, name)
    check(lambda *xs: [function(x.unsqueeze(1), y) for x in xs for y in xs], inputs, others=[[x[:2] for x in inputs]])


def test_logical_not(check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in DTYPES]
    check(lambda *xs: [torch.logical_not(x) for x in xs], inputs, others=[[x[:0] for x in inputs]])
