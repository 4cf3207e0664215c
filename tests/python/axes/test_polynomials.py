"""Polynomials in variables that are never negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exportguard.axes.polynomials import Polynomial

x, y = Polynomial.variable("x"), Polynomial.variable("y")


def constant(number: int) -> Polynomial:
    return Polynomial.constant(number)


@st.composite
def polynomials(draw: st.DrawFn) -> Polynomial:
    total = constant(draw(st.integers(-6, 6)))
    for _ in range(draw(st.integers(0, 4))):
        term = constant(draw(st.integers(-5, 5)))
        for variable in draw(st.lists(st.sampled_from([x, y]), max_size=2)):
            term = term * variable
        total = total + term
    return total


def value(polynomial: Polynomial, at_x: int, at_y: int) -> int:
    return polynomial.at("x", at_x).at("y", at_y).offset


@given(polynomials(), polynomials(), st.integers(0, 9), st.integers(0, 9))
def test_arithmetic_is_that_of_the_values(a: Polynomial, b: Polynomial, i: int, j: int) -> None:
    assert value(a + b, i, j) == value(a, i, j) + value(b, i, j)
    assert value(a - b, i, j) == value(a, i, j) - value(b, i, j)
    assert value(a * b, i, j) == value(a, i, j) * value(b, i, j)


@given(polynomials(), polynomials())
def test_a_quotient_times_the_divisor_and_the_remainder_is_the_dividend(a: Polynomial, b: Polynomial) -> None:
    if b.terms:
        quotient, remainder = a.divided_by(b)
        assert quotient * b + remainder == a


def test_nothing_is_divided_by_zero() -> None:
    with pytest.raises(ZeroDivisionError):
        x.divided_by(constant(0))


@given(polynomials(), st.one_of(st.none(), st.integers(0, 6)), st.integers(0, 6), st.integers(0, 12))
def test_what_is_never_negative_is_not(a: Polynomial, top: int | None, i: int, j: int) -> None:
    if a.never_negative({"x": top, "y": None}) and (top is None or i <= top):
        assert value(a, i, j) >= 0


def test_a_bounded_variable_may_have_a_negative_coefficient() -> None:
    assert (constant(6) - x).never_negative({"x": 6})
    assert not (constant(6) - x).never_negative({"x": 7})
    assert not (constant(6) - x).never_negative({"x": None})
