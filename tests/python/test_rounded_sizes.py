"""Sums that are written without remainders are the same numbers."""

from __future__ import annotations

import itertools

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from exportguard.patches.torch.rounded_sizes import without_remainders

N, M = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")


def _sums() -> st.SearchStrategy[sympy.Expr]:
    """Sums, multiples, quotients and remainders of two sizes, with divisors that are numbers or one of them."""
    divisors = st.sampled_from([2, 3, 8, M, sympy.Min(N, M), 2 * M])
    leaves = st.one_of(st.sampled_from([N, M, N + M]), st.integers(-9, 9).map(sympy.Integer))

    def deeper(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
        remainders = st.builds(lambda a, by: PythonMod(a, sympy.sympify(by)), inner, divisors)
        quotients = st.builds(lambda a, by: FloorDiv(a, sympy.sympify(by)), inner, divisors)
        padded = st.builds(
            lambda a, by: a + PythonMod(by - PythonMod(a, sympy.sympify(by)), sympy.sympify(by)), inner, divisors
        )
        sums = st.builds(lambda a, b, times: a + times * b, inner, inner, st.sampled_from([-3, -1, 1, 2]))
        return st.one_of(remainders, quotients, padded, sums)

    return st.recursive(leaves, deeper, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(_sums())
def test_a_sum_is_the_same_number_at_every_size(total: sympy.Expr) -> None:
    written = without_remainders(total)
    for n, m in itertools.product((1, 2, 3, 7, 8, 24, 25), (1, 2, 5, 9)):
        sizes = {N: n, M: m}
        assert written.subs(sizes) == total.subs(sizes), (total, written, sizes)


@pytest.mark.parametrize(
    ("total", "written"),
    [
        (N + Mod(8 - Mod(N, 8), 8), 8 * FloorDiv(N + 7, 8)),
        (N + PythonMod(-N, 8), 8 * FloorDiv(N + 7, 8)),
        (N + Mod(N, 2), 2 * FloorDiv(N + 1, 2)),
        (N - Mod(N, 4), 4 * FloorDiv(N, 4)),
        (N + PythonMod(M - Mod(N, M), M), -M * FloorDiv(-N, M)),
    ],
)
def test_a_size_that_is_rounded_stands_once(total: sympy.Expr, written: sympy.Expr) -> None:
    assert without_remainders(total) == written


def test_a_remainder_of_something_else_stays() -> None:
    assert without_remainders(M + Mod(N, 4)) == M + Mod(N, 4)
