"""Operators at the ends of every dtype and beside zero: what wraps around, what is cut, and the signs of zeros."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch

from exportguard import to_onnx

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
TOLERANCES = {
    torch.float16: (4e-3, 1e-4), torch.bfloat16: (2e-2, 1e-3), torch.float32: (2e-5, 1e-6), torch.float64: (1e-9, 1e-10)
}  # fmt: skip

Functions = Mapping[str, Callable[..., torch.Tensor]]

OF_ONE = (
    "abs", "neg", "sign", "sgn", "square", "ceil", "floor", "round", "trunc", "sqrt", "rsqrt", "reciprocal",
    "exp", "expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "sigmoid",
    "signbit", "bitwise_not", "logical_not",
)  # fmt: skip
OF_TWO = (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "atan2", "copysign", "pow", "eq", "lt",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd",
    "lcm", "ldexp", "xlogy", "maximum", "minimum", "nextafter",
)  # fmt: skip
MODES = ("trunc", "floor")
NUMBERS = (1, 2, 3, -1, -3, 7, 100, -100, 0, 2.5, -0.5)
EXPONENTS = (0, 1, 2, 3, 5, -1, -2, 0.5, -0.5)
WIDTHS = (1, 7, 8, 15, 16, 31, 32, 63, 64, 100)
SUMS = ("sum", "prod", "cumsum", "cumprod")

#: Which of two equal zeros is the larger one, and the sign of what nothing is left of, differ between torch's vectors
#: and its tails; onnxruntime leaves out a sum with 0, at which torch's -0.0 becomes 0.0, and its Where chooses
#: 0.0 for a -0.0 in the first branch.
WITHOUT_SIGNS = ("maximum", "minimum", "logsigmoid", "add(0)", "nextafter")

#: Multiplied by a power that a half cannot hold, and a runtime may.
NOT_OF_HALVES = ("ldexp",)

#: Where a quotient overflows, or has more digits than a number, torch's vectors give NaN and its tails the remainder.
OF_QUOTIENTS = ("remainder", "fmod")


def functions_of_one() -> Functions:
    table: dict[str, Callable[..., torch.Tensor]] = {name: getattr(torch, name) for name in OF_ONE}
    for number in NUMBERS:
        for name in ("add", "mul", "true_divide", "floor_divide", "remainder", "fmod"):
            table[f"{name}({number})"] = lambda x, name=name, n=number: getattr(torch, name)(x, n)
        table[f"trunc_divide({number})"] = lambda x, n=number: torch.div(x, n, rounding_mode="trunc")
        table[f"rsub({number})"] = lambda x, n=number: n - x
        table[f"({number})floor_divide"] = lambda x, n=number: n // x
        table[f"({number})remainder"] = lambda x, n=number: n % x
        table[f"({number})pow"] = lambda x, n=number: torch.pow(n, x)
    for exponent in EXPONENTS:
        table[f"pow({exponent})"] = lambda x, n=exponent: x**n
    for width in WIDTHS:
        table[f"left_shift({width})"] = lambda x, n=width: x << n
        table[f"right_shift({width})"] = lambda x, n=width: x >> n
    for name in SUMS:
        table[f"{name} in the same dtype"] = lambda x, name=name: getattr(torch, name)(x, 0, dtype=x.dtype)
    table["clamp"] = lambda x: x.clamp(-100, 100)
    table["clamp by floats"] = lambda x: x.clamp(-1.5, 2.5)
    table["logsigmoid"] = torch.nn.functional.logsigmoid
    return table


def functions_of_two() -> Functions:
    table: dict[str, Callable[..., torch.Tensor]] = {name: getattr(torch, name) for name in OF_TWO}
    for mode in MODES:
        table[f"div, {mode}"] = lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode)
    table["lerp"] = lambda x, y: torch.lerp(x.clamp(-100, 100), y.clamp(-100, 100), 0.3)
    table["addcmul"] = lambda x, y: torch.addcmul(x.clamp(-9, 9), y.clamp(-9, 9), y.clamp(-9, 9), value=2)
    return table


def is_quotient(name: str) -> bool:
    return any(part in name for part in ("div", "remainder", "fmod"))


def numbers_of(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        ends = torch.finfo(dtype)
        plain = [0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.25]
        extreme = [ends.max, ends.tiny, ends.max / 3, math.inf]
        return torch.tensor([math.nan, *plain, *extreme, *(-number for number in plain + extreme)], dtype=dtype)
    limits = torch.iinfo(dtype)
    middle, signed = limits.max // 2, [-1, -2, -3, -7, -8, limits.min // 2] if limits.min else []
    around = [0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 63, 64, 65, 100]
    ends_of_integers = [limits.min, limits.min + 1, limits.max - 1, limits.max, middle, middle + 1]
    return torch.tensor([*ends_of_integers, *around, *signed], dtype=dtype)


def without_trap(dtype: torch.dtype, name: str, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a processor divides: not by zero, and not the least of 32 or 64 bits by -1, at which it stops in torch."""
    is_division = not dtype.is_floating_point and (is_quotient(name) or name == "lcm")
    if not is_division:
        return list(given)
    is_wide = dtype in (torch.int32, torch.int64)
    keep = given[-1] != 0
    for tensor in given:
        keep &= (tensor != torch.iinfo(dtype).min) if is_wide else True
    return [tensor[keep] for tensor in given]


def is_compared(dtype: torch.dtype, name: str) -> bool:
    is_half = dtype in (torch.float16, torch.bfloat16)
    is_remainder = any(part in name for part in OF_QUOTIENTS)
    return not (is_half and name in NOT_OF_HALVES) and not (dtype.is_floating_point and is_remainder)


def takes(function: Callable[..., torch.Tensor], given: Sequence[torch.Tensor]) -> bool:
    try:
        function(*given)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def differing(got: torch.Tensor, expected: torch.Tensor, name: str) -> torch.Tensor:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    relative, absolute = TOLERANCES.get(expected.dtype, (0, 0))
    other = ~torch.isclose(got, expected, rtol=relative, atol=absolute, equal_nan=True)
    if expected.is_floating_point() and name not in WITHOUT_SIGNS:
        other |= (expected == 0) & (got.signbit() != expected.signbit())
    return other


def found_differences(functions: Functions, dtype: torch.dtype, given: Sequence[torch.Tensor]) -> list[str]:
    inputs = {name: without_trap(dtype, name, given) for name in functions if is_compared(dtype, name)}
    names = [name for name in inputs if takes(functions[name], inputs[name])]
    assert len(names) > 15
    told = []
    for is_cut in (False, True):  # one export for all that take the same numbers
        group = [name for name in names if (len(inputs[name][0]) < len(given[0])) == is_cut]
        if not group:
            continue
        feed = inputs[group[0]]

        def every(*tensors: torch.Tensor, group: Sequence[str] = group) -> list[torch.Tensor]:
            return [functions[name](*tensors) for name in group]

        module = type("Every", (torch.nn.Module,), {"forward": lambda _, *tensors, every=every: every(*tensors)})()
        model = to_onnx(module.eval(), tuple(feed))
        results = model.run({value.name: tensor for value, tensor in zip(model.inputs, feed, strict=True)}).values()
        for name, result in zip(group, results, strict=True):
            expected = functions[name](*feed)
            got = torch.as_tensor(result)
            other = differing(got, expected, name)
            if other.any():
                at = tuple(other.nonzero()[0].tolist())
                of = [tensor[at].item() for tensor in feed] if expected.shape == feed[0].shape else "all"
                told.append(f"{name} of {of}: {got[at].item()}, expected {expected[at].item()}")
    return told


DTYPES = (*INTEGERS, *TOLERANCES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_of_one_number(dtype: torch.dtype) -> None:
    assert found_differences(functions_of_one(), dtype, [numbers_of(dtype)]) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_of_two_numbers(dtype: torch.dtype) -> None:
    numbers = numbers_of(dtype)
    pairs = [numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))]
    assert found_differences(functions_of_two(), dtype, pairs) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_number_beside_another_one_scales_infinity(dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, -0.0, 1e-300, 3.0], dtype=dtype)

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x / 3 * 0.7, x.unsqueeze(0) * 0.1 @ torch.eye(5, dtype=dtype)[:, :1] / 7

    model = to_onnx(Scaled().eval(), (x,))
    for got, expected in zip(model.run({"x": x}).values(), Scaled()(x), strict=True):
        torch.testing.assert_close(
            torch.as_tensor(got), expected, equal_nan=True, rtol=1e-15 if dtype.itemsize == 8 else 1e-6, atol=0
        )
    first = torch.as_tensor(next(iter(model.run({"x": x}).values())))
    assert first.signbit().tolist() == [False, True, True, False, False]
