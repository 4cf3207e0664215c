from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.int16)

UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "positive": torch.positive,
    "reciprocal": torch.reciprocal,
    "sign": torch.sign,
    "sgn": torch.sgn,
    "square": torch.square,
    "add_number": lambda x: x + 3,
    "add_alpha": lambda x: torch.add(x, x, alpha=2),
    "sub_number": lambda x: x - 3,
    "rsub_number": lambda x: 3 - x,
    "rsub_alpha": lambda x: torch.rsub(x, 5, alpha=2),
    "mul_number": lambda x: x * 3,
    "div_number": lambda x: x / 4,
    "rdiv_number": lambda x: 1 / x,
    "floor_divide_number": lambda x: x // 3,
    "remainder_number": lambda x: x % 3,
    "fmod_number": lambda x: torch.fmod(x, 3),
    "div_trunc_number": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "div_floor_number": lambda x: torch.div(x, 3, rounding_mode="floor"),
    "pow_0": lambda x: x**0,
    "pow_1": lambda x: x**1,
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
}
UNARY_OF_FLOATS = {
    "pow_half": lambda x: x**0.5,
    "pow_minus_half": lambda x: x**-0.5,
    "pow_minus_1": lambda x: x**-1,
    "pow_minus_2": lambda x: x**-2,
    "pow_fraction": lambda x: x**1.3,
    "pow_of_number": lambda x: 2**x,
    "remainder_negative": lambda x: x % -2.5,
    "remainder_of_number": lambda x: torch.remainder(7.5, x),
    "fmod_negative": lambda x: torch.fmod(x, -2.5),
    "floor_divide_tenth": lambda x: x // 0.1,
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 1, value=0.5),
    "lerp_number": lambda x: torch.lerp(x, x + 1, 0.3),
    "lerp_to_the_end": lambda x: torch.lerp(x, x + 1, 1.0),
    "float_power": lambda x: torch.float_power(x, 2),
    "copysign_number": lambda x: torch.copysign(x, -0.0),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}
BINARY_OF_FLOATS = {
    "pow": torch.pow,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "lerp": lambda x, y: torch.lerp(x, y, y),
    "float_power": torch.float_power,
}


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in FLOATS + INTEGERS]
    if name in ("neg", "sub_number", "rsub_number", "rsub_alpha"):
        inputs = [x for x in inputs if x.dtype != torch.uint8]
    check(lambda *xs: [UNARY[name](x) for x in xs], inputs, others=[[x[:3] for x in inputs], [x[:0] for x in inputs]])


@pytest.mark.parametrize("name", UNARY_OF_FLOATS)
def test_of_one_float_operand(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in FLOATS]
    check(lambda *xs: [UNARY_OF_FLOATS[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs]])


def pairs(left: torch.Tensor, right: torch.Tensor) -> list[torch.Tensor]:
    """Every number on the left against every one on the right."""
    return [left.unsqueeze(1), right.unsqueeze(0)]


def first_rows(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [inputs[0][:2], inputs[1]]


@pytest.mark.parametrize("name", BINARY | BINARY_OF_FLOATS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_two_floats(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    inputs = pairs(numbers(dtype), numbers(dtype))
    check((BINARY | BINARY_OF_FLOATS)[name], inputs, others=[first_rows(inputs)])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_of_two_integers(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    inputs = pairs(x, x[x != 0])
    check(BINARY[name], inputs, others=[first_rows(inputs)])


MIXED = {
    "integer_and_float": (torch.add, [torch.arange(3), torch.rand(3)]),
    "integer_and_float_number": (lambda x: x * 1.5, [torch.arange(3)]),
    "half_and_float_number": (lambda x: x * 1.5, [torch.arange(3).half()]),
    "half_and_float_of_rank_0": (torch.add, [torch.arange(3).half(), torch.tensor(2.5)]),
    "half_and_double": (torch.mul, [torch.arange(3).half(), torch.rand(3, dtype=torch.float64)]),
    "bools": (lambda x, y: (x + y, x * y), [torch.tensor([True, False]), torch.tensor([True, True])]),
    "bool_and_integer": (torch.add, [torch.tensor([True, False]), torch.tensor([5, 6])]),
    "uint8_and_int8": (torch.add, [torch.tensor([1, 200], dtype=torch.uint8), torch.tensor([1, -3], dtype=torch.int8)]),
    "int32_and_int64": (torch.mul, [torch.arange(3, dtype=torch.int32), torch.arange(3)]),
    "pow_of_integer_by_float": (lambda x: x**0.5, [torch.arange(4)]),
    "pow_of_integers": (torch.pow, [torch.tensor([2, -3, 0, 5]), torch.tensor([3, 2, 0, 1])]),
    "rank_0": (lambda x, y: x / y + 1, [torch.tensor(3.0), torch.tensor(2)]),
}


@pytest.mark.parametrize("name", MIXED)
def test_promotes_as_torch_does(name: str, check: Check) -> None:
    function, inputs = MIXED[name]
    check(function, inputs)


@pytest.mark.parametrize("opset", [18, 25])
def test_runs_in_the_oldest_and_the_newest_opset(opset: int, check: Check, numbers: Numbers) -> None:
    x = numbers(torch.float32)
    check(lambda x: [function(x) for function in (UNARY | UNARY_OF_FLOATS).values()], [x], opset=opset)


def test_uses_a_size_as_a_number(check: Check) -> None:
    check(lambda x: x * x.shape[0] + x.shape[1], [torch.rand(4, 3)], others=[[torch.rand(2, 5)]])


BEYOND_HALVES = {
    "times 1e9": lambda x, _: x * -1e9,
    "times 1e-8": lambda x, _: x * 1e-8,
    "over 70000": lambda x, _: x / 70000,
    "number over halves": lambda x, _: 1e5 / x,
    "masked out": lambda x, _: (1 - (x > 0).half()) * -1e9,
    "scaled and back": lambda x, _: (x / 1e5) * 1e5,
    "over a count": lambda x, _: x / torch.tensor(100_000),
    "times a number of float32": lambda x, number: x * number,
    "over a number of float32": lambda x, number: x / number,
    "over a number of float64": lambda x, number: x / number.double(),
    "in place": lambda x, _: x.clone().mul_(1e-8),
}


@pytest.mark.parametrize("number", [1e6, 1e-6])
@pytest.mark.parametrize("name", BEYOND_HALVES)
def test_halves_are_scaled_by_numbers_that_no_half_is(check: Check, name: str, number: float) -> None:
    x = torch.tensor([0.0, -0.0, 6e4, -6e4, 1.0, 3.0, 1e-5], dtype=torch.float16)
    check(BEYOND_HALVES[name], [x, torch.tensor(number)])


def test_halves_are_scaled_by_a_count_of_elements_that_no_half_is(check: Check) -> None:
    x = torch.ones(4, 6, dtype=torch.float16)
    check(lambda x: x / (x.numel() * 10_000), [x], others=[[torch.ones(2, 3, dtype=torch.float16)]])
