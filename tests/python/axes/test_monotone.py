"""Expressions that only grow are decided at the ends of the domain; every answer is checked size by size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Min, Mod

from exportguard.axes.evaluation import Evaluation
from exportguard.axes.expressions import Range
from exportguard.axes.implication import Answer, decide
from exportguard.axes.monotone import always_holds, sizes_that_break, sizes_that_hold, tendency

s, b = (sympy.Symbol(name, integer=True, positive=True) for name in ("s27", "s77"))
frames = FloorDiv(FloorDiv(FloorDiv(s, 80) - 3, 2) - 1, 2) + 1  # of a stack of strided convolutions

_NUMBERS = st.integers(-6, 6)
_RELATIONS = (sympy.Eq, sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)


def expressions(symbols: list[sympy.Symbol]) -> st.SearchStrategy[Any]:
    """Sums, products, quotients, remainders and extremes of sizes."""
    leaves = st.sampled_from(symbols) | _NUMBERS.map(sympy.Integer)
    return st.recursive(
        leaves,
        lambda inner: (
            st.tuples(inner, inner).map(lambda two: two[0] + two[1])
            | st.tuples(inner, inner).map(lambda two: two[0] * two[1])
            | st.tuples(inner, st.integers(1, 5)).map(lambda two: FloorDiv(two[0], two[1]))
            | st.tuples(inner, st.integers(1, 5)).map(lambda two: CeilDiv(two[0], two[1]))
            | st.tuples(inner, st.integers(1, 5)).map(lambda two: Mod(sympy.Max(two[0], 0), two[1]))
            | st.tuples(inner, inner).map(lambda two: Max(*two))
            | st.tuples(inner, inner).map(lambda two: Min(*two))
        ),
        max_leaves=6,
    )


def relation(kind: Any, left: Any, number: int) -> Any:
    return kind(left, sympy.Integer(number), evaluate=False)


@settings(deadline=None, max_examples=150)
@given(expressions([s, b]), st.integers(0, 3), st.integers(3, 7))
def test_the_interval_holds_every_value_and_the_direction_is_the_one_it_goes_in(
    expression: Any, low: int, high: int
) -> None:
    domain = {s: Range(low, high), b: Range(low, high)}
    found = tendency(expression, domain)
    evaluation = Evaluation(expression, [s, b])
    values = {(x, y): evaluation({s: x, b: y}) for x in range(low, high + 1) for y in range(low, high + 1)}
    assert all(value is None or found.low <= value <= found.high for value in values.values())
    if found.direction is None:
        return
    for (x, y), value in values.items():
        for other in ((x + 1, y), (x, y + 1)):
            if other in values and value is not None and values[other] is not None:
                step = values[other] - value
                assert step * found.direction >= 0 if found.direction else step == 0


@settings(deadline=None, max_examples=150)
@given(expressions([s]), st.sampled_from(_RELATIONS), _NUMBERS, st.integers(0, 3))
def test_exactly_the_sizes_that_break_a_guard_are_found(expression: Any, kind: Any, number: int, low: int) -> None:
    guard, domain = relation(kind, expression, number), {s: Range(low, low + 60)}
    breaking, evaluation = sizes_that_break(guard, domain), Evaluation(guard, [s])
    if breaking is None:
        return
    for size in range(low, low + 61):
        assert any(one.holds(size) for one in breaking) == (evaluation({s: size}) is False)


def test_a_bound_through_several_strides_is_the_least_size_beyond_it() -> None:
    assert sizes_that_hold(relation(sympy.Ge, FloorDiv(FloorDiv(s, 5) - 1, 2) - 1, 3), {s: Range(2)}) == Range(45)
    assert sizes_that_hold(relation(sympy.Lt, frames, 3), {s: Range(2)}) == Range(2, 1039)
    assert sizes_that_hold(relation(sympy.Ne, frames, 3), {s: Range(2)}) is None


def test_a_length_that_only_long_inputs_have_is_found() -> None:
    decision = decide(relation(sympy.Ne, frames, 1), {s: Range(160)})
    assert decision.answer == Answer.DISPROVED
    evaluation = Evaluation(frames, [s])
    assert decision.counterexamples
    assert all(evaluation(sizes) == 1 for sizes in decision.counterexamples)


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        (relation(sympy.Ne, b * (FloorDiv(s, 5) - 1), 1), True),
        (relation(sympy.Ne, b * (FloorDiv(s, 5) - 9), 1), False),
        (relation(sympy.Gt, Mod(s, 4), 3), False),
        (relation(sympy.Lt, Mod(s, 4), 4), True),
        (relation(sympy.Ge, Max(s, b) * 2, 4), True),
    ],
    ids=str,
)
def test_what_the_ends_of_the_domain_say_of_several_sizes_at_once(guard: Any, holds: bool) -> None:
    assert always_holds(guard, {s: Range(20), b: Range(2)}) == holds


def test_an_expression_of_another_kind_is_left_to_the_other_proofs() -> None:
    assert tendency(Mod(s, b), {s: Range(2), b: Range(2)}).direction is None
    assert tendency(sympy.sin(s), {s: Range(2)}).high == math.inf
    assert sizes_that_break(relation(sympy.Eq, s, 1) & relation(sympy.Eq, s, 2), {s: Range(2)}) is None
