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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_ends_of_logit_are_numbers_of_its_dtype(dtype: torch.dtype, check: Check) -> None:
    x = torch.tensor([0, 1, 0.5, 0.9995, 1e-4, 1.5, -1], dtype=dtype)
    check(lambda x: [torch.logit(x.to(dtype), eps).isinf() for eps in (1e-3, 1e-6, 0.1)], [x.float()])


def test_powers_of_two_have_whole_logarithms(check: Check) -> None:
    check(lambda x: torch.floor(torch.log2(x)), [2.0 ** torch.arange(20)])


def test_takes_numbers_for_one_side(check: Check, numbers: Numbers) -> None:
    check(lambda x: (torch.xlogy(x, 2.5), torch.xlogy(0.5, x), torch.special.xlog1py(2, x)), [numbers(torch.float32)])


@pytest.mark.parametrize("exponents", [torch.int64, torch.int32, torch.int16], ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16], ids=str)
def test_powers_that_are_no_floats(dtype: torch.dtype, exponents: torch.dtype, check: Check) -> None:
    ends = torch.finfo(dtype)
    given = [0.0, -0.0, 1.5, -3.0, ends.max, ends.tiny, 1.1 * ends.tiny, float("inf"), float("nan")]
    powers = [0, 1, -1, 20, 130, 300, 1030, 2000, 2098, 3000, -20, -130, -300, -1030, -1060, -2000, -2098, -3000]
    x = torch.tensor(given, dtype=dtype).repeat_interleave(len(powers))
    i = torch.tensor(powers, dtype=exponents).repeat(len(given))

    def function(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        x = x.to(dtype)  # numpy has no bfloat16
        return [scaled.double() for scaled in (torch.ldexp(x, i), torch.ldexp(x[0], i[:2]), torch.ldexp(x, i[3]))]

    x = x.double()
    check(function, [x[:7], i[:7]], others=[[x, i]])


def test_ldexp_of_integers_and_by_floats(check: Check) -> None:
    i = torch.tensor([3, 0, -2, 300])
    x = torch.tensor([1.5, -0.25, 0.0, 2.0])
    check(
        lambda x, i: (
            torch.ldexp(i, i),
            torch.ldexp(x, x),
            torch.ldexp(x.double(), i.float()),
            torch.ldexp(i, x.double()),
        ),
        [x, i],
        others=[[x[:2], i[2:]]],
    )
