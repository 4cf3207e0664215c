"""What Python's floats make of sizes, as one fraction of whole numbers: `(n - 3) / 2 + 1` is `(n - 1) / 2`.

A fraction is known where the floats that Python computes have its digits, or are rounded once, in a quotient; a whole
number made of it is then a division of sizes, of which torch proves what it needs. Sizes are taken to be so small that
one rounding, of the 53rd digit, moves no quotient across a whole number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv, ToFloat

from exportguard.size_floats import PRODUCTS, SUMS

_MOST = 2**20  # what constants may multiply with and divide by, so that floats have all digits of what becomes of sizes
_LEAST_PART = 2**-4  # of 1, which the sum with a size below 2**48 keeps

#: By its name what rounds; `trunc` of what is never negative.
_ROUNDED: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "trunc": math.floor,
    "ceil": math.ceil,
    "round": round,
}


@dataclass(frozen=True)
class _Fraction:
    above: sympy.Expr
    below: Any = 1  # a number, or of sizes
    is_rounded: bool = False  # what Python computes is the nearest float


def whole_quotient(number: torch.SymFloat, name: str) -> int | torch.SymInt | None:
    """What `math.floor`, `ceil`, `trunc` or `round`, by name, makes of a number of sizes.

    None where that is no fraction. Of `round` it is no single quotient, unless nothing is left to round.
    """
    env = number.node.shape_env
    beside = _beside_a_part(number.node.expr, name)
    if beside is not None:
        size: torch.SymInt = env.create_symintnode(beside, hint=None)
        return size
    fraction = _fraction(number.node.expr)
    if fraction is None or not env.bound_sympy(sympy.sympify(fraction.below)).lower >= 1:
        return None
    whole = fraction.above / fraction.below
    if fraction.below == 1 or not whole.is_integer:
        if name == "round" or (name == "trunc" and not env.bound_sympy(fraction.above).lower >= 0):
            return None
        whole = _ceiling(fraction) if name == "ceil" else FloorDiv(fraction.above, fraction.below)
    found: int | torch.SymInt = int(whole) if whole.is_Integer else env.create_symintnode(whole, hint=None)
    return found


def _beside_a_part(expression: Any, name: str) -> sympy.Expr | None:
    """`n` for `int(n + 0.1)`: no size is so large that a float loses that part of 1."""
    if type(expression).__name__ != "FloatSum":
        return None
    size, constant = sorted(expression.args, key=lambda term: term.is_Number)
    if not constant.is_Number or not isinstance(size, ToFloat):
        return None
    part = float(constant) - math.floor(constant)
    is_told = _LEAST_PART <= part <= 1 - _LEAST_PART and (name != "round" or abs(part - 1 / 2) >= _LEAST_PART)
    is_never_negative = bool(size.args[0].is_nonnegative) and constant >= 0
    if not is_told or (name == "trunc" and not is_never_negative):
        return None
    return size.args[0] + _ROUNDED[name](float(constant))


def _ceiling(fraction: _Fraction) -> Any:
    return -FloorDiv(-fraction.above, fraction.below)


def _fraction(expression: Any) -> _Fraction | None:
    if isinstance(expression, ToFloat):
        return _fraction(expression.args[0])
    if isinstance(expression, IntTrueDiv | FloatTrueDiv):
        return _divided(*expression.args)
    if isinstance(expression, sympy.Float):
        return _constant(expression)
    if expression.is_integer:
        return _Fraction(expression)
    if type(expression).__name__ in (*SUMS, *PRODUCTS):
        terms = [_fraction(term) for term in expression.args]
        known = [term for term in terms if term is not None]
        if len(known) == len(terms):
            return _sum(known) if type(expression).__name__ in SUMS else _product(known)
    return None


def _constant(number: sympy.Float) -> _Fraction | None:
    if not math.isfinite(number):
        return None
    above, below = float(number).as_integer_ratio()
    return _Fraction(sympy.Integer(above), below) if max(abs(above), below) <= _MOST else None


def _divided(number: Any, divisor: Any) -> _Fraction | None:
    """Of sizes the divisor has all its digits, and the quotient is the only thing that is rounded."""
    above, below = _fraction(number), _fraction(divisor)
    if above is None or below is None or below.is_rounded or (below.above.is_Integer and below.above <= 0):
        return None
    is_exact = _scales(below)
    if above.is_rounded and not is_exact:
        return None
    return _Fraction(above.above * below.below, _divisor(above.below, below.above), above.is_rounded or not is_exact)


def _sum(terms: list[_Fraction]) -> _Fraction | None:
    if sum(term.is_rounded for term in terms) > 1 or not all(isinstance(term.below, int) for term in terms):
        return None
    below = math.lcm(*(term.below for term in terms))
    above = sympy.Add(*(term.above * (below // term.below) for term in terms))
    return _Fraction(above, below, any(term.is_rounded for term in terms))


def _product(factors: list[_Fraction]) -> _Fraction | None:
    """Of a rounded factor the others are powers of two: three times a third is not always one."""
    rounded = [factor for factor in factors if factor.is_rounded]
    others = [factor for factor in factors if not factor.is_rounded]
    if len(rounded) > 1 or (rounded and not all(map(_scales, others))):
        return None
    above = sympy.Mul(*(factor.above for factor in factors))
    return _Fraction(above, _divisor(*(factor.below for factor in factors)), bool(rounded))


def _divisor(*factors: Any) -> Any:
    product = sympy.Mul(*factors)
    return int(product) if product.is_Integer else product


def _scales(factor: _Fraction) -> bool:
    is_number = factor.above.is_Integer and factor.above != 0
    return is_number and _is_power_of_two(abs(int(factor.above))) and _is_power_of_two(factor.below)


def _is_power_of_two(number: Any) -> bool:
    return isinstance(number, int) and number & (number - 1) == 0
