"""Every function of one or two numbers in torch's table at special numbers: zeros, poles, infinities, NaN, extremes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from exportguard import to_onnx

#: Random, of complex halves, of no result in float32, or another number at each place of a vector: torch's vectors
#: and its remainders of one number have other quotients where these overflow.
LEFT_OUT = (
    "rand", "dropout", "rrelu", "jiterator", "chalf", "cdouble", "cfloat", "complex", "polar", "fmod", "remainder",
    "rmod",
)  # fmt: skip

#: torch computes these of huge and least numbers in the digits of their dtype, in which nothing of an angle is left, or
#: by a series that overflows.
WITHOUT_EXTREMES = ("airy", "bessel", "igamma", "sin", "cos", "tan", "zeta", "polynomial")

#: torch gives what the memory held for a polynomial of NaN.
WITHOUT_NAN = ("polynomial",)

PARTS = 3
TOLERANCES = {torch.float16: (5e-3, 1e-3), torch.float32: (1e-3, 1e-5), torch.float64: (1e-7, 1e-9)}


def special(dtype: torch.dtype) -> torch.Tensor:
    ends = torch.finfo(dtype)
    ordinary = [
        0.0,
        1.0,
        -1.0,
        -1.5,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        -7.0,
        2.5,
        10.25,
        -10.25,
        1e-3,
        -1e-3,
        30.0,
        -30.0,
    ]
    extreme = [-0.0, math.inf, -math.inf, math.nan, ends.max, ends.min, ends.tiny, -ends.tiny, ends.eps, 1 + ends.eps]
    return torch.tensor(ordinary + extreme, dtype=dtype)


def is_named(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


def functions(name_of_kind: str, dtype: torch.dtype) -> dict[str, Callable[..., Any]]:
    """By their names, the function with the keywords of its first sample, those of torch's table."""
    # Not at the top: the table takes its time, and whoever lists the tests has no use for it.
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    kind, found = getattr(core, name_of_kind), {}
    for operator in op_db:
        name = f"{operator.name} {operator.variant_test_name}"
        if isinstance(operator, kind) and not is_named(name, LEFT_OUT) and dtype in operator.supported_dtypes("cpu"):
            sample = next(iter(operator.sample_inputs("cpu", dtype, requires_grad=False)))
            found[name] = with_rest(operator, () if kind is core.BinaryUfuncInfo else sample.args, sample.kwargs)
    return found


def with_rest(function: Callable[..., Any], rest: Sequence[Any], keywords: dict[str, Any]) -> Callable[..., Any]:
    return lambda *operands: function(*operands, *rest, **keywords)


class All(torch.nn.Module):
    """Many functions of the same operands."""

    def __init__(self, made: dict[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.made = made

    def forward(self, *operands: torch.Tensor) -> list[Any]:
        return [function(*operands) for function in self.made.values()]


def assert_same_everywhere(made: dict[str, Callable[..., Any]], operands: Sequence[torch.Tensor]) -> None:
    whole = All(made).eval()
    model = to_onnx(whole, tuple(operands))
    results = list(model.run(dict(zip([value.name for value in model.inputs], operands, strict=True))).values())
    counts = [len(torch.utils._pytree.tree_leaves(function(*operands))) for function in made.values()]
    found = {}
    for (name, function), count in zip(made.items(), counts, strict=True):
        given, results = results[:count], results[count:]
        for got, expected in zip(given, torch.utils._pytree.tree_leaves(function(*operands)), strict=True):
            told = differences(name, torch.as_tensor(got), expected, operands)
            found |= {name: told} if told else {}
    assert not found


def differences(name: str, got: torch.Tensor, expected: torch.Tensor, operands: Sequence[torch.Tensor]) -> list[Any]:
    relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    if "bessel" in name:  # five digits of torch's are right beside a zero
        relative = max(relative, 1e-5)
    differs = ~torch.isclose(got, expected, rtol=relative, atol=absolute, equal_nan=True)
    if is_named(name, WITHOUT_EXTREMES):
        differs &= torch.stack([~x.isfinite() | (x == 0) | ((x.abs() > 1e-6) & (x.abs() < 1e4)) for x in operands]).all(
            0
        )
    if is_named(name, WITHOUT_NAN):
        differs &= ~torch.stack([x.isnan() for x in operands]).any(0)
    places = differs.nonzero().flatten().tolist()
    return [([x[at].item() for x in operands], got[at].item(), expected[at].item()) for at in places]


def part_of(made: dict[str, Callable[..., Any]], part: int) -> dict[str, Callable[..., Any]]:
    """Each third function: a run of the tests takes one part of each dtype."""
    return dict(itertools.islice(made.items(), part, None, PARTS))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_functions_of_one_number(dtype: torch.dtype, part: int) -> None:
    made = functions("UnaryUfuncInfo", dtype)
    assert len(made) > 60
    assert_same_everywhere(part_of(made, part), [special(dtype)])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_two_numbers(dtype: torch.dtype, part: int) -> None:
    made = part_of(functions("BinaryUfuncInfo", dtype), part)
    assert len(made) > 10
    numbers = special(dtype)
    assert_same_everywhere(made, [numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))])


@pytest.mark.parametrize("order", range(4))
def test_poles_of_polygamma(order: int) -> None:
    numbers = torch.cat([special(torch.float32), -torch.arange(20.0) / 2])
    assert_same_everywhere({f"polygamma {order}": lambda x: torch.polygamma(order, x)}, [numbers])


@pytest.mark.parametrize("q", [-0.5, -1.5, -10.25, -1e-30, 0.5, 1.0, 3.0, math.inf, math.nan])
def test_zeta_below_zero_and_of_infinity(q: float) -> None:
    s = torch.tensor([2.0, 3.0, 2.5, 1.0, 0.5, 150.0, math.inf, math.nan])
    assert_same_everywhere({"zeta": torch.special.zeta}, [s, torch.full_like(s, q)])


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "chebyshev_polynomial_t", "laguerre_polynomial_l"])
def test_polynomials_that_overflow(name: str) -> None:
    """What overflows in the dtype is NaN two degrees later, as in torch."""
    x = torch.tensor([0.0, 2.0, -1.5, -30.0, 1e3]).repeat_interleave(4)
    degrees = torch.tensor([30.0, 88.0, 130.0, 150.0]).repeat(5)
    assert_same_everywhere({name: getattr(torch.special, name)}, [x, degrees])
