"""Expressions of sizes as torch writes them: their value for given sizes, and what they are for all sizes at once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import sympy

from exportguard.size_floats import PRODUCTS, SUMS

from .polynomials import Polynomial

# Quotients rounded to integers: torch computes them from a float, which is exact below 2^53.
_ROUNDED = ("CeilToInt", "FloorToInt", "TruncToInt")
# What is added to a quotient, or multiplied with it, in floats: fractions with a longer denominator are rounded there.
_LARGEST_FRACTION = 1024
_SAME = ("Identity", "ToFloat")

_Known = TypeVar("_Known")


class NotPolynomialError(ValueError):
    """The expression is no polynomial, not even for sizes of one residue."""


@dataclass(frozen=True)
class Range:
    """The sizes that were asked for: from `low` to `high`, None for no end."""

    low: int = 0
    high: int | None = None

    def holds(self, size: int) -> bool:
        """Whether the size is one of them."""
        return size >= self.low and (self.high is None or size <= self.high)


Domain = Mapping[sympy.Symbol, Range]
Sizes = Mapping[sympy.Symbol, int]


@functools.lru_cache(maxsize=4096)
def parts(expression: sympy.Basic) -> tuple[sympy.Basic, ...]:
    """The expression and everything in it, each once, what is computed first in front."""
    found: dict[sympy.Basic, None] = {}
    for argument in expression.args:
        found.update(dict.fromkeys(parts(argument)))
    return (*found, expression)


@functools.lru_cache(maxsize=4096)
def periods(expression: sympy.Basic, symbol: sympy.Symbol) -> tuple[int, ...]:
    """Steps p to try, small ones first: where a size is p * k + r, quotients by constants ought to be polynomials.

    The last one is large enough for quotients of quotients.
    """
    within = [part for part in parts(expression) if symbol in symbols_of(part)]
    least = math.lcm(*map(_divisor, within))
    return tuple(sorted({least, _step(within, symbol, least)}))


def _step(within: Sequence[sympy.Basic], symbol: sympy.Symbol, least: int) -> int:
    """A multiple of the least step with which all quotients by constants are polynomials in k, in the parts given.

    Every coefficient of k in a part is a whole multiple of `slope * step` for one of the part's slopes: 1 of the size
    itself, 1/2 of `n // 2`, 1/8 of `n // 2 // 4`, and none of a remainder.
    """
    slopes: dict[sympy.Basic, set[Fraction]] = {symbol: {Fraction(1)}}
    step = least
    for part in within[1:]:  # the first is the symbol
        divisor = 1 if type(part).__name__ in _ROUNDED else _divisor(part)  # what is rounded is divided before
        own = {slope * _factor(part) / divisor for operand in part.args for slope in slopes.get(operand, ())}
        step = math.lcm(step, *(slope.denominator for slope in own))
        slopes[part] = set() if divisor > 1 and type(part).__name__ in ("Mod", "PythonMod") else own
    return step


def _factor(expression: sympy.Basic) -> Fraction:
    """The number that a product has for a factor."""
    first = expression.args[0] if type(expression).__name__ in PRODUCTS else sympy.Integer(1)
    return Fraction(*(_fraction(first) or (1, 1)))


def _divisor(expression: sympy.Basic) -> int:
    """The constant that an expression divides by; 1 if it does not."""
    if type(expression).__name__ in _ROUNDED:
        quotient = _as_quotient(expression.args[0])
        return 1 if quotient is None else quotient.fraction
    if type(expression).__name__ == "FloatTrueDiv":
        ratio = _fraction(expression.args[1])
        return 1 if ratio is None else abs(ratio[0]) or 1
    if len(expression.args) != 2 or type(expression).__name__ not in QUOTIENTS:
        return 1
    divisor = expression.args[1]
    return abs(int(divisor)) or 1 if divisor.is_Integer else 1


QUOTIENTS = ("FloorDiv", "CleanDiv", "CeilDiv", "IntTrueDiv", "Mod", "PythonMod")


@dataclass(frozen=True)
class Case:
    """The sizes of one residue: each symbol is a polynomial, in variables from 0 to their tops.

    `known` is shared by the cases of a proof, and of others with the same `values` and `tops` (see `remembering`): what
    an expression is depends on the residues of its own symbols alone.
    """

    values: Mapping[sympy.Symbol, Polynomial]
    tops: Mapping[str, int | None]
    starts: Mapping[sympy.Symbol, int]
    known: dict[Hashable, Any]

    def remembered(self, expression: sympy.Basic, compute: Callable[[sympy.Basic, Case], _Known]) -> _Known:
        """What is computed of the expression, once for all cases in which its symbols have the same residues."""
        symbols = symbols_of(expression)
        key = (compute, expression, *(start for symbol, start in self.starts.items() if symbol in symbols))
        if key not in self.known:
            self.known[key] = compute(expression, self)
        found: _Known = self.known[key]
        return found

    def at_least(self, polynomial: Polynomial, bound: int) -> bool:
        """Whether it is surely no less than the bound."""
        return (polynomial - Polynomial.constant(bound)).never_negative(self.tops)


@functools.lru_cache(maxsize=4096)
def symbols_of(expression: sympy.Basic) -> frozenset[sympy.Symbol]:
    """Those of an expression, which sympy gathers anew each time that it is asked."""
    return frozenset(expression.free_symbols)


_REMEMBERED: ContextVar[dict[Hashable, dict[Hashable, Any]] | None] = ContextVar("exportguard.remembered", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Within the block, what a proof finds of an expression is known to the next one about sizes of the same ranges."""
    token = _REMEMBERED.set({})
    try:
        yield
    finally:
        _REMEMBERED.reset(token)


def _known_of(steps: Mapping[sympy.Symbol, int], domain: Domain) -> dict[Hashable, Any]:
    every = _REMEMBERED.get()
    key = tuple((symbol, step, domain[symbol]) for symbol, step in steps.items())
    return {} if every is None else every.setdefault(key, {})


def cases(steps: Mapping[sympy.Symbol, int], domain: Domain) -> Iterator[Case]:
    """Every size of the domain is in one of the cases: size = low + start + step * variable."""
    known = _known_of(steps, domain)
    for starts in itertools.product(*map(range, steps.values())):
        values: dict[sympy.Symbol, Polynomial] = {}
        tops: dict[str, int | None] = {}
        for number, ((symbol, step), start) in enumerate(zip(steps.items(), starts, strict=True)):
            ends, name = domain[symbol], f"t{number}"
            low = ends.low + start
            values[symbol] = Polynomial.variable(name).times(step) + Polynomial.constant(low)
            tops[name] = None if ends.high is None else (ends.high - low) // step
        if all(top is None or top >= 0 for top in tops.values()):
            yield Case(values, tops, dict(zip(steps, starts, strict=True)), known)


def polynomial(expression: sympy.Basic, case: Case) -> Polynomial:
    """What the expression is for the sizes of the case.

    Raises:
        NotPolynomialError: it is not known to be any polynomial.
    """
    if expression.is_Integer or (expression.is_Float and float(expression).is_integer()):
        return Polynomial.constant(int(expression))
    if isinstance(expression, sympy.Symbol):
        return case.values[expression]
    return case.remembered(expression, _polynomial)


def _polynomial(expression: sympy.Basic, case: Case) -> Polynomial:
    operation = _operation(expression)
    return operation([polynomial(operand, case) for operand in _operands(expression)], case)


def candidates(extreme: sympy.Basic, case: Case) -> list[sympy.Basic]:
    """The arguments of a Max or Min that may be its value, without those that another one is always ahead of."""
    sign = 1 if type(extreme).__name__ == "Max" else -1
    values = [polynomial(argument, case).times(sign) for argument in extreme.args]
    return [
        argument
        for number, argument in enumerate(extreme.args)
        if not any(
            case.at_least(other - values[number], 0) and (place < number or other != values[number])
            for place, other in enumerate(values)
            if place != number
        )
    ]


@functools.lru_cache(maxsize=4096)
def innermost_extreme(expression: sympy.Basic) -> sympy.Basic | None:
    """A Max or Min in the expression whose arguments have none; None if there is none."""
    return next((part for part in parts(expression) if type(part).__name__ in ("Max", "Min")), None)


_Operation = Callable[[Sequence[Polynomial], Case], Polynomial]


@dataclass(frozen=True)
class _Quotient:
    """A float that is numerator / (denominator * fraction), all of them integers: of one division at the most."""

    numerator: sympy.Expr
    denominator: sympy.Expr = sympy.Integer(1)
    fraction: int = 1

    def __add__(self, other: _Quotient) -> _Quotient | None:
        """The sum of both, if one of them at the least has no division."""
        if 1 not in (self.denominator, other.denominator):
            return None
        denominator = self.denominator * other.denominator
        fraction = math.lcm(self.fraction, other.fraction)
        parts = (one.numerator * (fraction // one.fraction) * (denominator / one.denominator) for one in (self, other))
        return _Quotient(sympy.expand(sum(parts)), denominator, fraction)

    def times(self, numerator: int, denominator: int) -> _Quotient:
        return _Quotient(sympy.expand(self.numerator * numerator), self.denominator, self.fraction * denominator)

    def divided_by(self, numerator: int, denominator: int) -> _Quotient | None:
        """By a fraction, as by the step of `torch.arange`, if that is the first division; None by 0."""
        if self.denominator != 1 or numerator == 0:
            return None
        turned = denominator if numerator > 0 else -denominator
        return _Quotient(sympy.expand(self.numerator * turned), sympy.Integer(abs(numerator)), self.fraction)


@functools.lru_cache(maxsize=4096)
def _as_quotient(number: sympy.Basic) -> _Quotient | None:
    """What is rounded in `(n - 4) / 4 + 1`, `n / 3 + 0.5`, `n / 0.5` or `n * 0.25`.

    None where floats may have rounded it before: of a sum with two divisions both are rounded, and a factor as 0.1 is
    no tenth.
    """
    kind = type(number).__name__
    if kind == "IntTrueDiv":
        return _Quotient(*number.args)
    if kind == "ToFloat":
        return _Quotient(number.args[0])
    if number.is_number:
        ratio = _fraction(number)
        return None if ratio is None else _Quotient(sympy.Integer(1)).times(*ratio)
    if kind == "FloatTrueDiv" and number.args[1].is_number:
        ratio, quotient = _fraction(number.args[1]), _as_quotient(number.args[0])
        return None if ratio is None or quotient is None else quotient.divided_by(*ratio)
    if kind in SUMS:
        return functools.reduce(_sum_of_quotients, map(_as_quotient, number.args))
    if kind in PRODUCTS and len(number.args) == 2 and number.args[0].is_number:
        ratio, quotient = _fraction(number.args[0]), _as_quotient(number.args[1])
        return None if ratio is None or quotient is None else quotient.times(*ratio)
    return None


def _sum_of_quotients(one: _Quotient | None, other: _Quotient | None) -> _Quotient | None:
    return None if one is None or other is None else one + other


def _fraction(number: sympy.Basic) -> tuple[int, int] | None:
    """Numerator and denominator of a number that a float has exactly, None if the denominator is long."""
    if number.is_Integer:
        return int(number), 1
    if not number.is_Float:
        return None
    numerator, denominator = float(number).as_integer_ratio()
    return (numerator, denominator) if denominator <= _LARGEST_FRACTION else None


def _operands(expression: sympy.Basic) -> Sequence[sympy.Basic]:
    """What is computed first: the quotient in `CeilToInt(IntTrueDiv(a, b))` is none of its own."""
    quotient = _as_quotient(expression.args[0]) if type(expression).__name__ in _ROUNDED else None
    if quotient is not None:
        return [quotient.numerator, quotient.denominator * quotient.fraction]
    return list(expression.args)


def _operation(expression: sympy.Basic) -> _Operation:
    kind = type(expression).__name__
    if kind in _ROUNDED:
        return _first if _as_quotient(expression.args[0]) is None else _ROUNDINGS[kind]
    operation = _OPERATIONS.get(kind)
    if operation is None:
        raise NotPolynomialError(f"{kind} is no arithmetic of integers")
    return operation


def _first(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    return operands[0]


def _sum(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    total = Polynomial({})
    for operand in operands:
        total = total + operand
    return total


def _product(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    product = Polynomial.constant(1)
    for operand in operands:
        product = product * operand
    return product


def _power(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    base, exponent = operands
    if not exponent.is_constant or not 0 <= exponent.offset <= 8:
        raise NotPolynomialError("a power that is no small number")
    return _product([base] * exponent.offset, case)


def _quotient(a: Polynomial, b: Polynomial, case: Case) -> tuple[Polynomial, Polynomial]:
    """Quotient, rounded down, and remainder."""
    if b.is_constant and b.offset > 0:
        if not a.divides_by(b.offset):
            raise NotPolynomialError("a quotient that the step of the sizes does not divide")
        rest = Polynomial.constant(a.offset % b.offset)
        return (a - rest).divided_by_number(b.offset), rest
    if not case.at_least(b, 1):
        raise NotPolynomialError("a divisor that may be zero")
    quotient, rest = a.divided_by(b)
    for by in (0, 1, -1):
        shifted = rest + b.times(by)
        if case.at_least(shifted, 0) and case.at_least(b - shifted, 1):
            return quotient - Polynomial.constant(by), shifted
    raise NotPolynomialError("a remainder that is not known to be one")


def _floor(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    return _quotient(operands[0], operands[1], case)[0]


def _ceiling(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    return -_quotient(-operands[0], operands[1], case)[0]


def _truncated(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    if case.at_least(operands[0], 0):
        return _floor(operands, case)
    if case.at_least(-operands[0], 0):
        return _ceiling(operands, case)
    raise NotPolynomialError("a quotient of either sign")


def _remainder(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    return _quotient(operands[0], operands[1], case)[1]


def _exact(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    quotient, rest = _quotient(operands[0], operands[1], case)
    if rest.terms:
        raise NotPolynomialError("a quotient that is no integer")
    return quotient


def _absolute(operands: Sequence[Polynomial], case: Case) -> Polynomial:
    if case.at_least(operands[0], 0):
        return operands[0]
    if case.at_least(-operands[0], 0):
        return -operands[0]
    raise NotPolynomialError("an absolute value of either sign")


_ROUNDINGS: Mapping[str, _Operation] = {"CeilToInt": _ceiling, "FloorToInt": _floor, "TruncToInt": _truncated}
_OPERATIONS: Mapping[str, _Operation] = {
    "Abs": _absolute,
    "CeilDiv": _ceiling,
    "CleanDiv": _exact,
    "FloorDiv": _floor,
    "IntTrueDiv": _exact,
    "Mod": _remainder,
    "Pow": _power,
    "PowByNatural": _power,
    "PythonMod": _remainder,
    **dict.fromkeys(SUMS, _sum),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(_SAME, _first),
}
