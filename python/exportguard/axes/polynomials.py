"""Polynomials with integer coefficients in variables that are never negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The variables of a product with their powers, in order of their names: x² y is (("x", 2), ("y", 1)).
Monomial = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of products; `terms` has the coefficient of each, none of them zero."""

    terms: Mapping[Monomial, int]

    @staticmethod
    def constant(number: int) -> Polynomial:
        """A number."""
        return Polynomial({(): number} if number else {})

    @staticmethod
    def variable(name: str) -> Polynomial:
        """One variable."""
        return Polynomial({((name, 1),): 1})

    @property
    def offset(self) -> int:
        """The term without a variable."""
        return self.terms.get((), 0)

    @property
    def is_constant(self) -> bool:
        """Whether no variable is in it."""
        return all(not monomial for monomial in self.terms)

    @property
    def variables(self) -> frozenset[str]:
        """The variables that are in it."""
        return frozenset(name for monomial in self.terms for name, _ in monomial)

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial({monomial: factor for monomial, factor in terms.items() if factor})

    def __neg__(self) -> Polynomial:
        return self.times(-1)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        product = Polynomial({})
        for monomial, factor in other.terms.items():
            product = product + Polynomial(
                {_joined(one, monomial): coefficient * factor for one, coefficient in self.terms.items()}
            )
        return product

    def times(self, number: int) -> Polynomial:
        """Each coefficient times `number`."""
        return Polynomial({monomial: factor * number for monomial, factor in self.terms.items()} if number else {})

    def at(self, name: str, number: int) -> Polynomial:
        """The polynomial where the variable has this value."""
        result = Polynomial({})
        for monomial, factor in self.terms.items():
            power = dict(monomial).get(name, 0)
            rest = tuple(part for part in monomial if part[0] != name)
            result = result + Polynomial({rest: factor * number**power} if factor * number**power else {})
        return result

    def divided_by(self, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Quotient and remainder with `self == quotient * divisor + remainder`, as far as integers divide.

        Raises:
            ZeroDivisionError: the divisor is zero.
        """
        if not divisor.terms:
            raise ZeroDivisionError("a polynomial divided by zero")
        names = sorted(self.variables | divisor.variables)
        leading = _first_term(divisor, names)
        quotient, rest, remainder = Polynomial({}), self, Polynomial({})

        while rest.terms:
            first = _first_term(rest, names)
            term = _quotient_of_terms(first, rest.terms[first], leading, divisor.terms[leading])
            if term.terms:
                quotient, rest = quotient + term, rest - term * divisor
                continue
            part = Polynomial({first: rest.terms[first]})
            remainder, rest = remainder + part, rest - part

        return quotient, remainder

    def divided_by_number(self, number: int) -> Polynomial:
        """The quotient by a number other than 0 that divides each coefficient."""
        return Polynomial({monomial: factor // number for monomial, factor in self.terms.items()})

    def divides_by(self, number: int) -> bool:
        """Whether `number` divides each coefficient but the offset."""
        return all(factor % number == 0 for monomial, factor in self.terms.items() if monomial)

    def never_negative(self, tops: Mapping[str, int | None]) -> bool:
        """Whether it is surely at least 0 for all variables from 0 to their tops, None for no top.

        A polynomial that is linear in a variable has its least value at one of the ends; without an end it suffices
        that no coefficient is negative.
        """
        for name in self.variables:
            top = tops.get(name)
            if top is not None and self._degree(name) == 1:
                return all(self.at(name, end).never_negative(tops) for end in (0, top))
        return all(factor >= 0 for factor in self.terms.values())

    def _degree(self, name: str) -> int:
        return max((dict(monomial).get(name, 0) for monomial in self.terms), default=0)


def _joined(monomial: Monomial, other: Monomial) -> Monomial:
    powers = dict(monomial)
    for name, power in other:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


def _first_term(polynomial: Polynomial, names: Sequence[str]) -> Monomial:
    """The term of the highest degree; of several that with the higher powers of the first names."""

    def order(monomial: Monomial) -> tuple[int, list[int]]:
        powers = dict(monomial)
        return sum(powers.values()), [powers.get(name, 0) for name in names]

    return max(polynomial.terms, key=order)


def _quotient_of_terms(term: Monomial, factor: int, divisor: Monomial, by: int) -> Polynomial:
    """`factor * term / (by * divisor)`; nothing if that is no polynomial."""
    powers = dict(term)
    for name, power in divisor:
        powers[name] = powers.get(name, 0) - power
    if factor % by or any(power < 0 for power in powers.values()):
        return Polynomial({})
    return Polynomial({tuple(sorted((name, power) for name, power in powers.items() if power)): factor // by})
