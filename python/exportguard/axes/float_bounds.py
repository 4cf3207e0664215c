"""Comparisons of floats that are made of sizes, proved for all sizes at once: `n * 0.1 < n * 0.3 + 1`.

Each side is taken for what it would be without rounding, a sum of multiples of whole numbers, and for how far the
floats may be from that: each operation moves its result by half a digit of the 53rd at the most. The difference of the
sides is then at least the exact one less both of these. What has no such form, as a product of two sizes' floats, is
not known; nor are numbers of which a float has no 53 digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import sympy
from torch.utils._sympy.functions import FloorDiv

from exportguard.size_floats import SUMS

from .expressions import Domain, Range, parts
from .monotone import FARTHEST, Tendency, tendency

_HALF_A_DIGIT = Fraction(1, 2**53)
_SMALLEST, _LARGEST = 2.0**-64, 2.0**64  # factors with which nothing leaves the floats that have all digits
_CONSTANT = sympy.Integer(1)


class _NoSumError(ValueError):
    """An expression is no sum of multiples of whole numbers."""


@dataclass(frozen=True)
class _Multiples:
    """Whole numbers that are never negative, each with a factor; that of 1 is the constant."""

    factors: Mapping[sympy.Expr, Fraction] = field(default_factory=dict)

    def __add__(self, other: _Multiples) -> _Multiples:
        both = {**self.factors, **other.factors}
        return _Multiples({whole: self._factor(whole) + other._factor(whole) for whole in both})

    def times(self, factor: Fraction) -> _Multiples:
        return _Multiples({whole: own * factor for whole, own in self.factors.items()})

    def magnitude(self) -> _Multiples:
        """What it is no larger than, whatever its sign."""
        return _Multiples({whole: abs(own) for whole, own in self.factors.items()})

    def least(self, tendencies: Mapping[sympy.Expr, Tendency]) -> Fraction | None:
        """A number that it is never below; None if there is none."""
        total = Fraction(0)
        for whole, factor in self.factors.items():
            end = tendencies[whole].low if factor > 0 else tendencies[whole].high
            if factor and math.isinf(end):
                return None
            total += factor * Fraction(end) if factor else 0
        return total

    def _factor(self, whole: sympy.Expr) -> Fraction:
        return self.factors.get(whole, Fraction(0))


@dataclass(frozen=True)
class _Float:
    """A number without rounding, and how far what Python computes may be from it."""

    exact: _Multiples
    off_by: _Multiples = field(default_factory=_Multiples)

    def rounded(self) -> _Float:
        largest = self.exact.magnitude() + self.off_by
        return _Float(self.exact, self.off_by + largest.times(_HALF_A_DIGIT))

    def times(self, factor: Fraction) -> _Float:
        return _Float(self.exact.times(factor), self.off_by.times(abs(factor)))

    def __add__(self, other: _Float) -> _Float:
        return _Float(self.exact + other.exact, self.off_by + other.off_by)


def holds_for_floats(guard: sympy.Basic, domain: Domain) -> bool:
    """Whether a comparison is true on the whole domain, by how far the sides are apart.

    Sizes beyond `FARTHEST`, of which a float loses the first whole numbers, are left out.
    """
    tests = _TESTS.get(type(guard))
    if tests is None or all(side.is_integer for side in guard.args):
        return False
    near = _near(domain)
    try:
        sides = [_float(side, near) for side in guard.args]
    except _NoSumError:
        return False
    tendencies = {whole: tendency(whole, near) for side in sides for whole in side.exact.factors}
    off_by = (sides[0].off_by + sides[1].off_by).times(Fraction(-1))
    above = (sides[0].exact + sides[1].exact.times(Fraction(-1)) + off_by).least(tendencies)
    below = (sides[1].exact + sides[0].exact.times(Fraction(-1)) + off_by).least(tendencies)
    return any(test(above, below) for test in tests)


def with_whole_parts(guard: sympy.Basic, domain: Domain) -> sympy.Basic:
    """The guard with `n` in place of `floor((n + 0.1) / 7 * 7)`, and the like: what a float is but for a part of 1 that
    no rounding of it takes to a whole number. Sizes beyond `FARTHEST` are left out."""
    rounded = [part for part in parts(guard) if type(part).__name__ in _WHOLE]
    if not rounded:
        return guard
    near = _near(domain)
    known = {part: whole for part in rounded if (whole := _whole_part(part, near)) is not None}
    return _with_one_quotient(guard.xreplace(known)) if known else guard


def _with_one_quotient(guard: sympy.Basic) -> sympy.Basic:
    """The guard with one name for quotients: torch has another where it is known that nothing remains."""
    clean = {part: FloorDiv(*part.args) for part in parts(guard) if type(part).__name__ == "CleanDiv"}
    return guard.xreplace(clean) if clean else guard


def _whole_part(rounding: sympy.Basic, domain: Domain) -> sympy.Expr | None:
    """The whole number that a rounded float is, for one that is a sum of whole numbers and a constant."""
    try:
        value = _float(rounding.args[0], domain)
    except _NoSumError:
        return None
    tendencies = {whole: tendency(whole, domain) for whole in {*value.exact.factors, *value.off_by.factors}}
    off_by = value.off_by.times(Fraction(-1)).least(tendencies)
    least = value.exact.least(tendencies)
    factors = {whole: factor for whole, factor in value.exact.factors.items() if whole != _CONSTANT}
    if off_by is None or least is None or any(factor.denominator != 1 for factor in factors.values()):
        return None
    kind = type(rounding).__name__
    if kind == "TruncToInt" and least + off_by < 0:
        return None
    constant = value.exact.factors.get(_CONSTANT, Fraction(0))
    ends = {_WHOLE[kind](constant + by) for by in (off_by, -off_by)}
    if len(ends) != 1:
        return None
    return sympy.Add(*(int(factor) * whole for whole, factor in factors.items()), ends.pop())


#: What rounds, each in one direction; `TruncToInt` of what is never negative.
_WHOLE: Mapping[str, Callable[[Fraction], int]] = {
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.floor,
}

_Test = Callable[[Fraction | None, Fraction | None], bool]


def _is_above(above: Fraction | None, below: Fraction | None) -> bool:
    return above is not None and above > 0


def _is_below(above: Fraction | None, below: Fraction | None) -> bool:
    return below is not None and below > 0


_TESTS: Mapping[type, Sequence[_Test]] = {
    sympy.Unequality: (_is_above, _is_below),
    sympy.GreaterThan: (lambda above, below: above is not None and above >= 0,),
    sympy.StrictGreaterThan: (_is_above,),
    sympy.LessThan: (lambda above, below: below is not None and below >= 0,),
    sympy.StrictLessThan: (_is_below,),
}


def _near(domain: Domain) -> Domain:
    return {
        symbol: Range(ends.low, min(FARTHEST if ends.high is None else ends.high, FARTHEST))
        for symbol, ends in domain.items()
    }


def _taken_back(product: sympy.Basic) -> sympy.Basic | None:
    """What `a / b * float(b)` is but for rounding: a, where b is not 0."""
    for quotient, factor in itertools.permutations(product.args, 2) if len(product.args) == 2 else ():
        is_quotient, is_float = type(quotient).__name__ == "IntTrueDiv", type(factor).__name__ == "ToFloat"
        if is_quotient and is_float and quotient.args[1] == factor.args[0]:
            return quotient.args[0]
    return None


def _float(expression: sympy.Basic, domain: Domain) -> _Float:
    kind = type(expression).__name__
    if expression.is_Number:
        return _Float(_Multiples({_CONSTANT: _constant(expression)}))
    if expression.is_integer:
        return _Float(_of_whole_numbers(expression, domain))
    if kind == "ToFloat":
        return _float(expression.args[0], domain)
    if kind in SUMS:  # those of sympy are what a comparison was put together from, and exact
        total = sum((_float(term, domain) for term in expression.args), _Float(_Multiples()))
        return total if kind == "Add" else total.rounded()
    if kind in ("FloatProduct", "Mul") and len(expression.args) == 2 and expression.args[0].is_Number:
        product = _float(expression.args[1], domain).times(_constant(expression.args[0]))
        return product if expression.args[0] == -1 else product.rounded()
    divided = _taken_back(expression) if kind in ("FloatProduct", "Mul") else None
    if divided is not None:  # what is lost by the quotient and by the product is a part of the whole
        return _float(divided, domain).rounded().rounded()
    if kind in ("IntTrueDiv", "FloatTrueDiv") and expression.args[1].is_Number:
        return _float(expression.args[0], domain).times(1 / _constant(expression.args[1])).rounded()
    raise _NoSumError


def _constant(number: sympy.Basic) -> Fraction:
    """A number that is 0 or far from the ends of the floats."""
    value = float(number)
    if value and not _SMALLEST <= abs(value) <= _LARGEST:
        raise _NoSumError
    return Fraction(value)


def _of_whole_numbers(expression: sympy.Expr, domain: Domain) -> _Multiples:
    total = _Multiples()
    for term in sympy.Add.make_args(sympy.expand(expression)):
        factor, whole = term.as_coeff_Mul()
        if not factor.is_Integer or (whole != _CONSTANT and tendency(whole, domain).low < 0):
            raise _NoSumError
        total += _Multiples({whole: Fraction(int(factor))})
    return total
