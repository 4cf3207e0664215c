"""Whether a guard holds for all sizes is decided, or left open, but never guessed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod

from exportguard.axes import implication
from exportguard.axes.evaluation import Evaluation, Points, points_where
from exportguard.axes.expressions import Range, periods, remembering
from exportguard.axes.implication import Answer, decide

s, b = (sympy.Symbol(name, integer=True, positive=True) for name in ("s27", "s77"))
padded = s + Mod(4 - Mod(s, 4), 4)
within = s + b - Max(0, s + b - 15)


def convolved(size: sympy.Expr, strides: Sequence[int]) -> sympy.Expr:
    """The size behind convolutions, each padded to a multiple of its stride."""
    for stride in strides:
        size = FloorDiv(size + PythonMod(-size, stride), stride)
    return size


def at_least(size: sympy.Expr, least: int) -> sympy.Expr:
    """The size that a model pads to what its next operator takes at the least."""
    return (least - size) * Max(0, Min(1, least - size)) + size


PROVED = {
    "a multiple": sympy.Eq(Mod(b * padded, 4 * b), 0),
    "a view of what is padded": sympy.Eq(b * padded, 4 * b * FloorDiv(padded, 4)),
    "a quotient by a size": sympy.Eq(FloorDiv(padded, FloorDiv(padded, 4)), 4),
    "halves of any size": sympy.Eq(FloorDiv(s + FloorDiv(s + 1, 2) - 1, FloorDiv(s + 1, 2)), 2),
    "a rounded quotient": sympy.Eq(CeilToInt(IntTrueDiv(s, 4)), FloorDiv(s + 3, 4)),
    "a product": b * s >= 4,
    "a larger one": Max(s, b) >= 2,
    "a window": sympy.Eq(16 * Max(1, within), 16 * within),
    "odd is not even": sympy.Ne(4 * s + 1, 2 * FloorDiv(b, 2) * 2, evaluate=False),
    "the least of a bound and the size": sympy.LessThan(Min(8, s + b), s + b, evaluate=False),
    "more than the size and a bound": Max(8, s) + 3 > s + 1,
    "what is left of a part of itself": Mod(FloorDiv(s + 2, 4), 4 * FloorDiv(s + 2, 4)) > 0,
    "a size by its half": sympy.Ne(FloorDiv(s, FloorDiv(s, 2)), 1),
    "blocks of both": sympy.Ne(3 * FloorDiv(b, 2) * FloorDiv(b, FloorDiv(b, 2)) * FloorDiv(s, FloorDiv(s, 2)), 0),
    "behind convolutions": convolved(s, (2, 4, 5, 8)) > 0,
    "up again behind convolutions": 320 * convolved(s, (2, 4, 5, 8)) >= s,
    "long enough behind convolutions": at_least(convolved(s, (2, 4, 5, 8)), 7) >= 7,
    "either": sympy.Or(s >= 2, sympy.Eq(b, 9)),
}
DISPROVED = {
    "a bound": (s > 4, [2, 3, 4], True),
    "a single chunk": (sympy.Ne(FloorDiv(padded, 4), 1), [2, 3, 4], True),
    "a value": (sympy.Eq(IntTrueDiv(s, 2), 3.0), [2, 7, 3], False),  # on both sides of it
    "a large bound": (s <= 512, [513], False),
    "the most of both": (Max(s, 5) <= s, [2, 3, 4], True),
    "what may be nothing": (sympy.Ne(Mod(FloorDiv(s, 4), 4 * FloorDiv(s, 4)), 0), [2, 3], True),
    "a size by its quarter, which may be nothing": (sympy.Ne(FloorDiv(s, FloorDiv(s, 4)), 1), [2, 3], False),
    "a multiple of three": (sympy.Eq(Mod(s, 3), 0), [2, 4, 5], False),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_always_holds_is_proved(name: str) -> None:
    assert decide(PROVED[name], {s: Range(2), b: Range(2)}).answer == Answer.PROVED


@pytest.mark.parametrize("name", DISPROVED)
def test_what_fails_at_some_sizes_is_disproved_by_the_smallest_of_them(name: str) -> None:
    guard, first, is_complete = DISPROVED[name]
    decision = decide(guard, {s: Range(2)})
    assert decision.answer == Answer.DISPROVED
    assert [sizes[s] for sizes in decision.counterexamples][: len(first)] == first
    assert decision.is_complete == is_complete


@pytest.mark.parametrize(("patch", "side"), [(8, 5), (14, 16), (14, 37), (16, 14), (32, 7)])
def test_the_grid_of_patches_that_a_table_was_made_for_is_found(patch: int, side: int) -> None:
    patches = FloorDiv(s, patch) * FloorDiv(b, patch)
    decision = decide(sympy.Ne(patches, side**2), {s: Range(1), b: Range(1)})
    assert decision.answer == Answer.DISPROVED
    assert all((sizes[s] // patch) * (sizes[b] // patch) == side**2 for sizes in decision.counterexamples)
    assert {s: side * patch, b: side * patch} in decision.counterexamples


def test_a_bound_that_was_asked_for_is_implied() -> None:
    assert decide(s <= 512, {s: Range(2, 512)}).answer == Answer.PROVED
    assert decide(sympy.Ne(s, 7), {s: Range(8, 100)}).answer == Answer.PROVED
    assert decide(s * b <= 36, {s: Range(2, 6), b: Range(2, 6)}).answer == Answer.PROVED


def test_what_cannot_be_told_is_left_open() -> None:
    guard = sympy.Ne(sympy.Function("unknown")(s), 3)
    assert decide(guard, {s: Range(2)}).answer == Answer.OPEN


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Any:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([s, b, *map(sympy.Integer, range(-3, 9))]))
    left, right = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    number = draw(st.integers(1, 5))
    operation = draw(
        st.sampled_from(
            [
                lambda: left + right,
                lambda: left - right,
                lambda: number * left,
                lambda: FloorDiv(left, number),
                lambda: FloorDiv(left, FloorDiv(s, number)),
                lambda: Mod(left, number),
                lambda: Max(left, right),
                lambda: Min(left, right),
            ]
        )
    )
    try:
        return operation()
    except AssertionError:  # torch's remainder is one of sizes, which are not negative
        return left


RELATIONS = (sympy.Eq, sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)


def guards_on_one_size() -> st.SearchStrategy[Any]:
    """Tests of a single size, as what is known of it: they hold from some size on, up to some, at one, or beside it."""
    sizes = [s, b, *(FloorDiv(symbol + shift, 4) for symbol in (s, b) for shift in (0, 3))]
    return st.builds(
        lambda relation, size, number: relation(size, number),
        st.sampled_from(RELATIONS),
        st.sampled_from(sizes),
        st.integers(0, 5) | st.sampled_from([s, b]),
    )


@settings(max_examples=200, deadline=None)
@example(s, Mod(Min(-3, s) - 3, 2), sympy.Ne, 0, [])  # a remainder that has no value
@given(
    expressions(),
    expressions(),
    st.sampled_from(RELATIONS),
    st.integers(0, 3),
    st.lists(guards_on_one_size(), max_size=2),
)
def test_what_is_proved_holds_at_every_size(left: Any, right: Any, relation: Any, low: int, others: list[Any]) -> None:
    try:
        guard = sympy.Or(relation(left, right), *others)
    except (AssertionError, TypeError, ValueError):  # torch's functions refuse some operands
        return
    symbols = sorted(guard.free_symbols, key=str)
    decision = decide(guard, {s: Range(low), b: Range(low)})
    evaluation = Evaluation(guard, symbols)
    if decision.answer == Answer.PROVED:
        sizes = ({s: i, b: j} for i in range(low, low + 14) for j in range(low, low + 14))
        assert all(evaluation(one) is not False for one in sizes)
    found = {evaluation(counterexample) for counterexample in decision.counterexamples}
    assert found <= {False} or found == {None}
    if found == {None}:  # it has no value there, and holds wherever it has one
        sizes = ({s: i, b: j} for i in range(low, low + 30) for j in range(low, low + 30))
        assert all(evaluation(one) is not False for one in sizes)


def test_no_more_sizes_are_gone_through_than_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [0]

    def counted(evaluations: Sequence[Evaluation], points: Points, wanted: bool | None = True) -> Any:
        counts.append(sum(1 for _ in points))
        assert sum(counts) < 50_000  # of the 2^50 that a remainder of both quotients takes
        return points_where(evaluations, points, wanted)

    monkeypatch.setattr(implication, "points_where", counted)
    guard = sympy.Ne(FloorDiv(FloorDiv(s, 4096), FloorDiv(s, 8192)), 1)
    assert decide(guard, {s: Range(2)}).answer == Answer.OPEN
    assert sum(counts) > 100


def test_what_holds_for_each_of_few_sizes_is_proved() -> None:
    guard = sympy.Or(sympy.Ne(s, 2 * b), s + b < 6)
    assert decide(guard, {s: Range(2, 3), b: Range(1)}).answer == Answer.PROVED
    assert decide(guard, {s: Range(2, 4), b: Range(1)}).answer == Answer.DISPROVED
    assert decide(guard, {s: Range(2), b: Range(1, 3)}).answer == Answer.DISPROVED
    assert decide(sympy.Ne(s, FloorDiv(7, b)), {s: Range(8), b: Range(0, 3)}).answer != Answer.PROVED


@pytest.mark.parametrize(
    ("size", "least", "enough"),
    [
        (convolved(s, (2, 4, 5, 8)), 40, 320),
        (FloorDiv(FloorDiv(s, 2) + 1, 4), 4, 8),
        (FloorDiv(6 * FloorDiv(s, 2) + 1, 4), 4, 4),
        (CeilToInt(IntTrueDiv(FloorDiv(s, 3), 2) + 0.5), 6, 6),
        (Max(FloorDiv(s, 4), FloorDiv(s, 6)), 12, 12),
        (b, 1, 1),
    ],
)
def test_a_period_is_no_longer_than_quotients_of_quotients_take(size: sympy.Expr, least: int, enough: int) -> None:
    steps = periods(size, s)
    assert steps == tuple(sorted({least, enough}))
    values = [Evaluation(size, [b, s])({b: 1, s: 7 + steps[-1] * turn}) for turn in range(6)]
    assert len({after - before for before, after in itertools.pairwise(values)}) == 1


@settings(max_examples=150, deadline=None)
@given(expressions(), expressions(), st.sampled_from(RELATIONS), st.lists(st.integers(0, 30), min_size=4, max_size=4))
def test_a_guard_is_evaluated_as_sympy_does_it(left: Any, right: Any, relation: Any, numbers: list[int]) -> None:
    sizes = {s: numbers[0], b: numbers[1]}
    try:
        guard = sympy.Or(relation(left, right), sympy.And(s < numbers[2], relation(right, b)), b > numbers[3])
        expected = guard.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
    except (AssertionError, TypeError, ValueError, ZeroDivisionError):  # torch's functions refuse some operands
        return
    symbols = sorted(guard.free_symbols, key=str)
    if expected in (sympy.true, sympy.false):
        assert Evaluation(guard, symbols)(sizes) in (bool(expected), None)


def test_what_decides_asks_for_no_value_behind_it() -> None:
    guard = sympy.Or(b > 3, FloorDiv(s, b - 2) > 0, evaluate=False)
    evaluation = Evaluation(guard, [b, s])
    assert evaluation({b: 4, s: 1}) is True
    assert evaluation({b: 2, s: 1}) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(expressions(), expressions(), st.sampled_from(RELATIONS), st.integers(0, 3)), max_size=6))
def test_what_a_proof_remembers_changes_no_other_answer(asked: list[tuple[Any, Any, Any, int]]) -> None:
    guards = []
    for left, right, relation, low in asked:
        with contextlib.suppress(AssertionError, TypeError, ValueError):  # torch's functions refuse some operands
            guards.append((relation(left, right), {s: Range(low), b: Range(low, low + 20 * low or None)}))
    alone = [decide(guard, domain) for guard, domain in guards]
    with remembering():
        assert [decide(guard, domain) for guard, domain in guards] == alone


def test_what_has_no_value_is_not_proved() -> None:
    """A division by what is 0 in one of the cases; sympy compares no complex infinity."""
    guard = sympy.Le(sympy.zoo * Min(s, b - 1), 0)
    assert decide(guard, {s: Range(2, None), b: Range(2, None)}).answer != Answer.PROVED
