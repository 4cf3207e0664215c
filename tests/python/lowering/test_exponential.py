from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

UNARY = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "entr": torch.special.entr,
    "logit": torch.logit,
    "logit_eps": lambda x: torch.logit(x, 0.1),
}
BINARY = {
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
}


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in (*FLOATS, torch.int32, torch.bool)]
    check(lambda *xs: [UNARY[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs], [x[:0] for x in inputs]])


@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name: str, check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)
    check(BINARY[name], [x.unsqueeze(1), x.unsqueeze(0)], others=[[x[:2].unsqueeze(1), x.unsqueeze(0)]])


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_keeps_the_digits_of_small_numbers(name: str, check: Check) -> None:
    x = torch.tensor([1e-3, -1e-3, 1e-5, -1e-5, 1e-8, -1e-8, 3e-20])
    check(lambda x: UNARY[name](x) / x, [x])


def test_powers_of_two_have_whole_logarithms(check: Check) -> None:
    check(lambda x: torch.floor(torch.log2(x)), [2.0 ** torch.arange(20)])


def test_takes_numbers_for_one_side(check: Check, numbers: Numbers) -> None:
    check(lambda x: (torch.xlogy(x, 2.5), torch.xlogy(0.5, x), torch.special.xlog1py(2, x)), [numbers(torch.float32)])
