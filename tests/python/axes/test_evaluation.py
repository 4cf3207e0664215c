"""Conditions on many sizes at once have the answers that Python has for one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloatPow,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
)

from exportguard import _core
from exportguard.axes.evaluation import Evaluation, Points, points_where

s, b = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("s27", "s77"))
RELATIONS = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from([2**20, 2**31, 2**40, 2**53 + 1, 2**62]))
SPANS = st.tuples(st.lists(SIZES, min_size=1, max_size=20), st.lists(SIZES, min_size=1, max_size=20))
OPERATIONS = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    FloorDiv,
    Mod,
    PythonMod,
    CleanDiv,
    Max,
    Min,
    IntTrueDiv,
    lambda x, y: RoundToInt(IntTrueDiv(x, 2)) + y,
    lambda x, y: CeilToInt(IntTrueDiv(x, y)),
    lambda x, y: FloorToInt(sympy.Float(0.7) * ToFloat(x)) + y,
    lambda x, y: TruncToInt(FloatTrueDiv(ToFloat(x), ToFloat(y))),
    lambda x, y: sympy.Float(1.5) * ToFloat(x) + ToFloat(y),
    lambda x, y: sympy.Float(0.1) + x * IntTrueDiv(y, 3),
)


def numbers() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.sampled_from([s, b]), st.integers(-4, 9).map(sympy.Integer))
    operations = st.sampled_from(OPERATIONS)
    return st.recursive(leaves, lambda parts: st.builds(applied, operations, parts, parts), max_leaves=6)


def applied(operation: Any, first: Any, second: Any) -> Any:
    """The first operand where torch's functions refuse both."""
    try:
        return operation(first, second)
    except (AssertionError, TypeError, ValueError, ZeroDivisionError):
        return first


def comparisons() -> st.SearchStrategy[Any]:
    return st.builds(applied, st.sampled_from(RELATIONS), numbers(), numbers())


def conditions() -> st.SearchStrategy[Any]:
    def joined(kind: Any, parts: Sequence[Any]) -> Any:
        try:
            return kind(*parts, evaluate=False)
        except TypeError:  # a number alone
            return sympy.true

    joining = st.sampled_from([sympy.And, sympy.Or])
    return st.recursive(
        comparisons(),
        lambda parts: st.builds(joined, joining, st.lists(parts, min_size=2, max_size=3)),
        max_leaves=4,
    )


@settings(max_examples=300, deadline=None)
@example([sympy.Or(b > 3, FloorDiv(s, b - 2) > 0, evaluate=False)], ([4, 2, 0], [1, 3, 2**62]), True)
@example([sympy.Ge(b * b * s, 2**64)], ([2**31, 2**40], [2, 4, 2**62]), True)  # beyond 64 bits
@example([sympy.Gt(s, b)], ([1, 2, 3], [1, 2, 3]), True)
@example([sympy.Eq(RoundToInt(IntTrueDiv(s, 2)), b)], ([0, 2, 4], [1, 3, 5, 7]), True)  # to the even one
@example([sympy.Lt(IntTrueDiv(2**53 + s, 2), 2.0**52 + b)], ([1, 2, 2**53], [1, 2, 3, 2**62]), True)  # as they are
@example([sympy.Ne(ToFloat(s), b)], ([2**53, 2**53 + 1], [2**53, 2**53 + 1]), True)
@example([sympy.Lt(FloorDiv(-s - 1, 2), -b)], ([0, 1, 2], [0, 1, 5]), True)  # rounded down
@given(st.lists(conditions(), min_size=1, max_size=3), SPANS, st.booleans())
def test_many_sizes_at_once_have_the_answers_of_one(asked: list[Any], spans: Any, is_combined: bool) -> None:
    evaluations = [Evaluation(condition, [b, s]) for condition in asked if isinstance(condition, sympy.Basic)]
    rows = spans if is_combined else [span[: min(map(len, spans))] for span in spans]
    every = [*(itertools.product(*rows) if is_combined else zip(*rows, strict=True))]
    for wanted in (True, False, None):
        expected = [point for point in every if all(one.at(point) is wanted for one in evaluations)]
        assert [*points_where(evaluations, Points(rows, is_combined), wanted)] == expected


def test_what_numbers_say_is_computed_outside_of_python() -> None:
    simple = sympy.And(s * b > 4, sympy.Ne(Mod(s, 8), 0), sympy.Eq(Max(s, b) ** 2, 9))
    assert Evaluation(simple, [b, s]).condition is not None
    assert Evaluation(sympy.Ge(RoundToInt(IntTrueDiv(s, b) * ToFloat(b)), 3.0), [b, s]).condition is not None
    assert Evaluation(sympy.Ge(Max(IntTrueDiv(s, 2), b), 3), [b, s]).condition is None  # of either kind
    assert Evaluation(sympy.Ge(FloatPow(ToFloat(s), 0.5), 3.0), [b, s]).condition is None
    assert Evaluation(s + b, [b, s]).condition is None  # no condition


def test_more_sizes_than_are_computed_at_once_come_in_their_order() -> None:
    evaluation = Evaluation(sympy.Eq(Mod(s * b, 7), 0), [b, s])
    spans = [range(1, 50), range(1, 60)]
    expected = [(x, y) for x, y in itertools.product(*spans) if x * y % 7 == 0]
    assert [*points_where([evaluation], Points(spans))] == expected
    assert next(points_where([evaluation], Points([range(1, 10_000), range(1, 10_000)]))) == (1, 7)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([("+", [0, 1], 0)], "in front"),
        ([("size", [], 2)], "in front"),
        ([("size", [], 0), ("<", [0], 0)], "in front"),
        ([("size", [], 0), ("**", [0, 0], 0)], "no operation"),
        ([], "no step"),
        ([("real", [], 0.5)], "ends in a number"),
        ([("size", [], 0), ("float", [0, 0], 0)], "in front"),
        ([("size", [], 0), ("real", [], 0.5), ("max", [0, 1], 0)], "integers and floats"),
        ([("size", [], 0), ("real", [], 0.5), ("//", [0, 1], 0)], "has floats"),
        ([("number", [], 0.5)], "in front"),
    ],
)
def test_steps_that_are_none_are_refused(steps: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        _core.SizeCondition(steps, 2, lambda sizes: None)


def test_sizes_of_other_conditions_are_refused() -> None:
    condition = Evaluation(s > b, [b, s]).condition
    assert condition is not None
    with pytest.raises(ValueError, match="other conditions"):
        _core.SizeSearch([condition], [[1, 2]], True, True)
    with pytest.raises(ValueError, match="other conditions"):
        _core.SizeSearch([condition], [[1, 2], [3]], True, False)
    assert _core.SizeSearch([condition], [[1, 2], []], True, True).more() == []
