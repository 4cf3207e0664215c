"""Whether a guard holds for all sizes that were asked for.

A guard is decided in one of these ways, and none of them guesses:

- **disproved** by sizes of the domain for which it is false;
- **proved** by the intervals of its sides, or disproved at the ends of an expression that only grows (see `monotone`);
- **proved** by how far two floats are apart, and what rounding may add (see `float_bounds`);
- **proved** by going through all sizes if they are few, or through all residues: with sizes `low + p * t`, where p is
  what the guard divides by, quotients and remainders are polynomials in the t, and a polynomial without negative
  coefficients is never negative;
- **disproved** by sizes for which it has no value, where a divisor is zero, if it is proved for all larger ones: what a
  model asks there is for itself to say, and it is tried;
- **open** if neither succeeds. Whoever asks has to take that for disproved.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
from sympy.core.relational import Relational

from .evaluation import Evaluation, Points, points_where
from .expressions import (
    QUOTIENTS,
    Case,
    Domain,
    NotPolynomialError,
    Range,
    Sizes,
    candidates,
    cases,
    innermost_extreme,
    parts,
    periods,
    polynomial,
)
from .float_bounds import holds_for_floats, with_whole_parts
from .monotone import always_holds, one_range, sizes_that_break
from .polynomials import Polynomial

_EACH = 16  # sizes of some symbols that are gone through one by one
_SMALL = 4096  # as many at the most, where a guard on one size is proved above them
_POINTS = 3000  # sizes tried in search of a counterexample
_GRID = 10_000  # of those that lie close together, where these break nothing
_CASES = 2048  # residues gone through for a proof
_SHOWN = 8  # counterexamples that are told
_SMALL_QUOTIENT = 16  # a float next to it is nearer than 1 / 2**48
_PARTS = 300  # small sizes gone through one by one where a divisor changes
_LARGE = 60  # a size that few divisors make zero
_USUAL = (16, 17, 31, 64, 97, 128, 513, 1000, 4097)


class Answer(enum.Enum):
    """What is known of a guard."""

    PROVED = "proved"
    DISPROVED = "disproved"
    OPEN = "open"


@dataclass(frozen=True)
class Decision:
    """An answer; a disproved guard is false for each of the `counterexamples`.

    With `is_complete` there are no others.
    """

    answer: Answer
    counterexamples: Sequence[Sizes] = ()
    is_complete: bool = False


def decide(guard: sympy.Basic, domain: Domain) -> Decision:
    """Whether the guard holds on the whole domain, which has a range for each of its symbols."""
    guard = with_whole_parts(_without_own_multiples(guard), domain)
    if guard == sympy.true:
        return Decision(Answer.PROVED)
    equal = _equal_where_it_may_fail(guard)
    if equal is not None:
        return _decided_where_equal(guard, *equal, domain)
    symbols = sorted(guard.free_symbols, key=str)
    ranges: Domain = {symbol: domain.get(symbol, Range(2)) for symbol in symbols}
    if always_holds(guard, ranges) or holds_for_floats(guard, ranges):
        return Decision(Answer.PROVED)
    breaking = sizes_that_break(guard, ranges)
    if breaking is not None:
        return _decided_by_ranges(symbols[0], breaking)
    ranges = _where_single_parts_fail(guard, ranges)
    evaluation = Evaluation(guard, symbols)
    count = _number_of_points(ranges)
    points = [_all_points(ranges)] if count is not None else _some_points(guard, ranges)
    false = _false_at(points, evaluation, symbols)
    if not false:
        known = count is not None and _is_known_at(_all_points(ranges), evaluation)
        if known or any(prove(guard, ranges) for prove in (_is_proved_at_once, _is_proved_above, _is_proved_for_each)):
            return Decision(Answer.PROVED)
        false = _false_at(_grid(guard, ranges), evaluation, symbols) if count is None else []
    if false:
        return Decision(Answer.DISPROVED, *_sampled(guard, ranges, false, is_all=count is not None))
    return _decided_beside_zero(guard, ranges)


def _false_at(points: Iterable[Points], evaluation: Evaluation, symbols: Sequence[sympy.Symbol]) -> list[Sizes]:
    found = itertools.chain.from_iterable(points_where([evaluation], some, False) for some in points)
    return [dict(zip(symbols, sizes, strict=True)) for sizes in found]


def _is_known_at(points: Points, evaluation: Evaluation) -> bool:
    """Whether it has a value at each of them."""
    return next(points_where([evaluation], points, None), None) is None


def _equal_where_it_may_fail(guard: sympy.Basic) -> tuple[sympy.Symbol, sympy.Symbol] | None:
    """Two sizes that are equal wherever an `Or` is false: `w > h`, `w < h` and `w != h` are parts of it."""
    pairs = set()
    for part in guard.args if isinstance(guard, sympy.Or) else ():
        if isinstance(part, _APART) and all(side.is_Symbol for side in part.args):
            pairs |= {(part.gts, part.lts)} if not isinstance(part, sympy.Ne) else {part.args, part.args[::-1]}
    return next(((a, b) for a, b in sorted(pairs, key=str) if (b, a) in pairs), None)


def _decided_where_equal(guard: sympy.Basic, one: sympy.Symbol, other: sympy.Symbol, domain: Domain) -> Decision:
    """The answer for a guard that may fail only where two sizes are equal."""
    spans = [domain.get(symbol, Range(2)) for symbol in (one, other)]
    ends = [span.high for span in spans if span.high is not None]
    both = Range(max(span.low for span in spans), min(ends, default=None))
    if both.high is not None and both.low > both.high:
        return Decision(Answer.PROVED)
    try:
        there = guard.xreplace({one: other})
    except (ZeroDivisionError, AssertionError):  # as in `_holds`
        return Decision(Answer.OPEN)
    if there in (sympy.true, sympy.false):
        points = [] if there == sympy.true else [{one: both.low, other: both.low}]
        return Decision(Answer.DISPROVED if points else Answer.PROVED, points)
    found = decide(there, {**domain, other: both})
    points = [
        {**sizes, one: sizes.get(other, both.low), other: sizes.get(other, both.low)} for sizes in found.counterexamples
    ]
    return replace(found, counterexamples=points)


def _where_single_parts_fail(guard: sympy.Basic, domain: Domain) -> Domain:
    """The sizes at which those parts of an `Or` are false that are on one size, where these are one range.

    What is left to show is the rest of the guard there: `min(h // 4, w // 4) <= 1` where `h // 4 != 1` is false.
    """
    for part in guard.args if isinstance(guard, sympy.Or) else ():
        breaking = sizes_that_break(part, domain)
        whole = one_range(breaking) if breaking else None
        if whole is not None:
            (symbol,) = part.free_symbols
            domain = {**domain, symbol: whole}
    return domain


def _is_proved_at_once(guard: sympy.Basic, domain: Domain) -> bool:
    return _is_proved(guard, sorted(guard.free_symbols, key=str), domain)


def _is_proved_above(guard: sympy.Basic, domain: Domain) -> bool:
    """Whether a guard on one size is true for small ones, and proved for all larger: `2 != 2 * w` or `w < 4`.

    So is one on what is padded where it is short: `w // 8 + max(6 - w // 8, 0) > 5`.
    """
    if len(domain) != 1:
        return False
    ((symbol, ends),) = domain.items()
    largest = max(map(abs, _numbers(guard)), default=0)
    count = min(max(_EACH, (1 + largest) * periods(guard, symbol)[-1]), _SMALL)
    evaluation, small = Evaluation(guard, [symbol]), range(ends.low, ends.low + count)
    above = {symbol: Range(small.stop, ends.high)}
    points = Points([small])
    is_true_below = not _false_at([points], evaluation, [symbol]) and _is_known_at(points, evaluation)
    return is_true_below and _is_proved(guard, [symbol], above)


def _is_proved_for_each(guard: sympy.Basic, domain: Domain) -> bool:
    """Whether it is proved for each size of those symbols that have few: `h != 2 * w` where h is 2 or 3 and w above."""
    few = {symbol: span for symbol, span in domain.items() if span.high is not None and span.high - span.low < _EACH}
    if len(few) in (0, len(domain)) or math.prod((span.high or 0) - span.low + 1 for span in few.values()) > _EACH:
        return False
    others = {symbol: span for symbol, span in domain.items() if symbol not in few}
    try:
        return all(_is_proved_with(guard, dict(zip(few, sizes, strict=True)), others) for sizes in _all_points(few))
    except (ZeroDivisionError, AssertionError):  # as in `_holds`
        return False


def _is_proved_with(guard: sympy.Basic, sizes: Sizes, others: Domain) -> bool:
    """Whether it is proved where some symbols have one size."""
    part = guard.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
    if not part.free_symbols:
        return bool(part == sympy.true)
    return decide(part, others).answer == Answer.PROVED


def _decided_beside_zero(guard: sympy.Basic, domain: Domain) -> Decision:
    """The answer for a guard with divisors that change: `w // (w // 2) != 1` has no value for a `w` of 0 and 1."""
    divisors = {
        part.args[1] for part in parts(guard) if type(part).__name__ in QUOTIENTS and not part.args[1].is_Integer
    }
    divided = {symbol for divisor in divisors for symbol in divisor.free_symbols}
    if not divided:
        return Decision(Answer.OPEN)
    symbols = sorted(guard.free_symbols, key=str)
    if math.prod(len(_small(guard, symbol, domain[symbol])) for symbol in divided) > _PARTS:
        return Decision(Answer.OPEN)
    evaluation = Evaluation(guard, symbols)
    large = {symbol: span.low + _LARGE if span.high is None else span.high for symbol, span in domain.items()}
    low = dict.fromkeys(symbols, 0)
    undefined: list[Sizes] = []
    for symbol in sorted(divided, key=str):
        span = domain[symbol]
        without = [size for size in _small(guard, symbol, span) if evaluation({**large, symbol: size}) is None]
        undefined += [{**large, symbol: size} for size in without]
        low[symbol] = max(without, default=span.low - 1) + 1
    above = {symbol: Range(max(span.low, low[symbol]), span.high) for symbol, span in domain.items()}
    if not _is_proved_in_parts(guard, above, sorted(divided, key=str)):
        return Decision(Answer.OPEN)
    return Decision(Answer.DISPROVED, undefined) if undefined else Decision(Answer.PROVED)


def _small(guard: sympy.Basic, symbol: sympy.Symbol, ends: Range) -> range:
    """The sizes below which a remainder may be larger than a quotient by what the guard divides by."""
    return range(ends.low, ends.low + periods(guard, symbol)[0] ** 2)


def _is_proved_in_parts(guard: sympy.Basic, domain: Domain, split: Sequence[sympy.Symbol]) -> bool:
    """Whether it is proved for each small size of the symbols to split, and for all larger ones at once."""
    if guard in (sympy.true, sympy.false):
        return bool(guard == sympy.true)
    if not split:
        rest = sorted(guard.free_symbols, key=str)
        return _is_proved(guard, rest, {symbol: domain[symbol] for symbol in rest})
    symbol, *others = split
    ends = domain[symbol]
    sizes = _small(guard, symbol, ends)
    larger = {**domain, symbol: Range(sizes.stop, ends.high)}
    try:
        single = [guard.xreplace({symbol: sympy.Integer(size)}) for size in sizes if ends.holds(size)]
    except (ZeroDivisionError, AssertionError):  # as in `_holds`
        return False
    return _is_proved_in_parts(guard, larger, others) and all(
        _is_proved_in_parts(part, domain, others) for part in single
    )


def _decided_by_ranges(symbol: sympy.Symbol, breaking: Sequence[Range]) -> Decision:
    """The answer where all sizes are known that break a guard on one size."""
    if not breaking:
        return Decision(Answer.PROVED)
    is_complete = all(span.high is not None and span.high - span.low < _SHOWN for span in breaking)
    found = sorted({size for span in breaking for size in _told(span, is_all=is_complete)})
    return Decision(Answer.DISPROVED, [{symbol: size} for size in found], is_complete)


def _told(sizes: Range, *, is_all: bool) -> Iterator[int]:
    """All sizes of a range, or its least ones, usual ones, and the last."""
    high = sizes.low + 2**12 if sizes.high is None else sizes.high
    if is_all:
        yield from range(sizes.low, high + 1)
        return
    some = {sizes.low, sizes.low + 1, sizes.low + 2, *_USUAL, high, 2 * sizes.low}
    yield from sorted(size for size in some if sizes.low <= size <= high)[:_SHOWN]


def _without_own_multiples(guard: sympy.Basic) -> sympy.Basic:
    """The guard with `size` in place of `size % (4 * size)`, of which torch asks where it divides two shapes.

    For a size of 0, at which that is not defined, the guard is then no more likely to hold.
    """
    own = {
        part: part.args[0]
        for part in parts(guard)
        if type(part).__name__ in ("Mod", "PythonMod") and _is_own_multiple(*part.args)
    }
    return guard.xreplace(own) if own else guard


def _is_own_multiple(size: sympy.Expr, divisor: sympy.Expr) -> bool:
    factor = divisor / size if not size.is_number else sympy.nan
    return bool(factor.is_Integer and factor > 1)


def _number_of_points(domain: Domain) -> int | None:
    """How many sizes there are, if it is few enough to try all."""
    widths = [None if span.high is None else max(span.high - span.low + 1, 0) for span in domain.values()]
    known = [width for width in widths if width is not None]
    count = math.prod(known)
    return count if len(known) == len(widths) and count <= _POINTS else None


def _all_points(domain: Domain) -> Points:
    return Points([range(span.low, (span.high or 0) + 1) for span in domain.values()])


def _some_points(guard: sympy.Basic, domain: Domain) -> Iterator[Points]:
    """Small sizes, usual ones, and those around the numbers in the guard; for several symbols some of all combinations.

    The same ones at each call.
    """
    spans = [sorted(sizes_to_try(span, _numbers(guard))) for span in domain.values()]
    if math.prod(map(len, spans)) <= _POINTS:
        yield Points(spans)
        return
    small = [span[: max(2, math.floor(_POINTS ** (1 / len(spans)) / 2))] for span in spans]
    if math.prod(map(len, small)) <= _POINTS:
        yield Points(small)
    chosen = random.Random(0)
    yield Points([chosen.choices(span, k=_POINTS) for span in spans], is_combined=False)


def _numbers(guard: sympy.Basic) -> set[int]:
    """The numbers in a guard, as integers; not those that are larger than any size."""
    atoms = (part for part in parts(guard) if part.is_Integer or part.is_Float)
    return {int(atom) for atom in atoms if abs(atom) < 2**62}


def _grid(guard: sympy.Basic, domain: Domain) -> Iterator[Points]:
    """All combinations of small multiples of what a guard divides by: `(h // 16) * (w // 16) != 196` fails at one.

    Of a guard on one size also all that leave another remainder: `-n % 40 != 3` fails at 37. Of one on several also
    those that are one more along some of them: `h % 16 == 0` where `(h // 16) * (w // 16) == 196`.
    """
    if len(domain) == 1:
        ((symbol, ends),) = domain.items()
        count = min(periods(guard, symbol)[0], _SMALL)
        yield Points([[size for size in range(ends.low, ends.low + count) if ends.holds(size)]])
    steps = {symbol: periods(guard, symbol)[0] for symbol in domain}
    further = [*itertools.product((0, 1), repeat=len(domain))][1:] if max(steps.values(), default=1) > 1 else []
    yield _multiples(steps, domain, [0] * len(domain), _GRID)
    for by in further if len(domain) > 1 else ():
        yield _multiples(steps, domain, by, _GRID // len(further))


def _multiples(steps: Mapping[sympy.Symbol, int], domain: Domain, by: Sequence[int], count: int) -> Points:
    """So many combinations at the most, of which each size is a multiple of a step and so much more."""
    width = math.floor(count ** (1 / len(domain)))
    return Points(
        [
            _multiples_within(ends, steps[symbol], more, width)
            for (symbol, ends), more in zip(domain.items(), by, strict=True)
        ]
    )


def _multiples_within(ends: Range, step: int, more: int, count: int) -> range:
    """Those of the first multiples of a step, and so much more, that a range has."""
    first = max(1, -((more - ends.low) // step))
    last = count if ends.high is None else min(count, (ends.high - more) // step)
    return range(first * step + more, last * step + more + 1, step)


def sizes_to_try(ends: Range, numbers: set[int]) -> set[int]:
    """Small sizes, usual ones, and those around some numbers."""
    around = {number + by for number in numbers for by in (-1, 0, 1)} | {2 * number for number in numbers}
    found = {*range(ends.low, ends.low + 12), *_USUAL, *around}
    return {size for size in found if ends.holds(size)} or {ends.low}


def _sampled(guard: sympy.Basic, domain: Domain, false: list[Sizes], *, is_all: bool) -> tuple[list[Sizes], bool]:
    """The counterexamples to tell, smallest first, and whether there are no others."""
    each_once = {tuple(sizes.values()): sizes for sizes in false}.values()
    by_size = sorted(each_once, key=lambda sizes: (sum(sizes.values()), max(sizes.values(), default=0)))
    ordered = _with_each_side(guard, by_size)
    if is_all or _holds_above(guard, domain, ordered):
        return (ordered, True) if len(ordered) <= _SHOWN else (ordered[:_SHOWN], False)
    step = max(1, len(ordered) // _SHOWN)
    return [*ordered[: _SHOWN // 2], *ordered[_SHOWN // 2 :: step]][:_SHOWN], False


def _with_each_side(guard: sympy.Basic, ordered: list[Sizes]) -> list[Sizes]:
    """With the first of those on each side of what is compared in front, the sides that are equal last.

    `a > b` is false where both are equal, too: there `max(a, b)` is `b` as well, and a program that takes the one for
    the other is right by luck.
    """
    compared = [part for part in guard.args or () if isinstance(part, Relational)] or [guard]
    if not any(isinstance(part, sympy.Gt | sympy.Lt | sympy.Eq) for part in compared):
        return ordered
    differences = [part.args[0] - part.args[1] for part in compared if isinstance(part, Relational)]
    evaluations = [Evaluation(one, sorted(one.free_symbols, key=str)) for one in differences]
    firsts = dict[tuple[int, ...], Sizes]()
    for sizes in ordered:
        values = (evaluation(sizes) for evaluation in evaluations)
        firsts.setdefault(tuple(0 if value is None else (value > 0) - (value < 0) for value in values), sizes)
    chosen = [firsts[side] for side in sorted(firsts, key=lambda side: side.count(0))]
    return [*chosen, *(sizes for sizes in ordered if not any(sizes is one for one in chosen))]


def _holds_above(guard: sympy.Basic, domain: Domain, false: Sequence[Sizes]) -> bool:
    """Whether a guard on one size is true above the counterexamples, which are then all of them if none was skipped."""
    if len(domain) != 1:
        return False
    ((symbol, ends),) = domain.items()
    largest = max(sizes[symbol] for sizes in false)
    if largest > ends.low + _SHOWN:
        return False
    above = {symbol: Range(largest + 1, ends.high)}
    return _is_proved(guard, [symbol], above)


def _is_proved(guard: sympy.Basic, symbols: Sequence[sympy.Symbol], domain: Domain) -> bool:
    largest = max((len(periods(guard, symbol)) for symbol in symbols), default=1)
    return any(_is_proved_by(guard, symbols, domain, attempt) for attempt in range(largest))


def _is_proved_by(guard: sympy.Basic, symbols: Sequence[sympy.Symbol], domain: Domain, attempt: int) -> bool:
    steps = {symbol: periods(guard, symbol)[: attempt + 1][-1] for symbol in symbols}
    if math.prod(steps.values()) > _CASES:
        return False
    return all(_holds(guard, case) for case in cases(steps, domain))


def _holds(guard: sympy.Basic, case: Case) -> bool:
    """Whether the guard is surely true in one case."""
    if guard in (sympy.true, sympy.false):
        return bool(guard == sympy.true)
    if isinstance(guard, sympy.And):
        return all(_holds(argument, case) for argument in guard.args)
    if isinstance(guard, sympy.Or):
        return any(_holds(argument, case) for argument in guard.args)
    return type(guard) in _TESTS and case.remembered(guard, _is_true)


def _is_true(guard: sympy.Basic, case: Case) -> bool:
    """Whether a comparison is."""
    try:
        extreme = innermost_extreme(guard)
        if extreme is not None:
            if _is_eased(guard, extreme):
                return any(_holds(_with(guard, extreme, argument), case) for argument in extreme.args)
            # Its value is that of one argument, for each size of some one: it suffices that each makes the guard true.
            return all(_holds(_with(guard, extreme, candidate), case) for candidate in candidates(extreme, case))
        difference = _difference_of_quotients(guard, case)
        if difference is None:
            difference = polynomial(guard.args[0], case) - polynomial(guard.args[1], case)
    except (NotPolynomialError, AssertionError):  # torch's remainder takes no negative numbers
        return False
    return _TESTS[type(guard)](difference, case)


def _difference_of_quotients(guard: sympy.Basic, case: Case) -> Polynomial | None:
    """What is above or below 0 as `a / b - c / d` is, if the guard compares such quotients and may find them equal.

    Python rounds `a / b` to the nearest float, which keeps the order of two quotients, but makes some of them equal:
    none but `c * b / b` is a small whole number c, since `1 / b` is more than what rounds to it; sizes beyond those of
    `FARTHEST` are left out.
    """
    if not any(map(_is_quotient, guard.args)):
        return None
    sides = [sympy.Integer(int(side)) if _is_whole(side) else side for side in guard.args]
    is_exact = any(side.is_Integer and abs(side) <= _SMALL_QUOTIENT for side in sides)
    if not is_exact and not isinstance(guard, sympy.GreaterThan | sympy.LessThan):
        return None
    (a, b), (c, d) = (
        [polynomial(part, case) for part in (side.args if _is_quotient(side) else (side, sympy.Integer(1)))]
        for side in sides
    )
    if not (case.at_least(b, 1) and case.at_least(d, 1)):
        raise NotPolynomialError
    return a * d - c * b


def _is_whole(side: sympy.Basic) -> bool:
    return bool(side.is_Float and float(side).is_integer())


def _is_quotient(side: sympy.Basic) -> bool:
    return type(side).__name__ == "IntTrueDiv"


@functools.lru_cache(maxsize=4096)
def _with(guard: sympy.Basic, part: sympy.Basic, argument: sympy.Basic) -> sympy.Basic:
    """The guard with something in a part's place, the same in every case of a proof.

    Raises:
        NotPolynomialError: it has no value there, as where it divides by what is 0 then.
    """
    try:
        return guard.xreplace({part: argument})
    except TypeError as error:  # sympy compares no complex infinity
        raise NotPolynomialError(str(error)) from error


@functools.lru_cache(maxsize=4096)
def _is_eased(guard: sympy.Basic, extreme: sympy.Basic) -> bool:
    """Whether any argument in place of the extreme makes the guard harder: a Min that is added to the smaller side."""
    if not isinstance(guard, _ORDERS):
        return False
    is_min = type(extreme).__name__ == "Min"
    is_smaller_first = isinstance(guard, sympy.LessThan | sympy.StrictLessThan)
    side, other = guard.args if is_min == is_smaller_first else reversed(guard.args)
    rest = side - extreme
    return not rest.has(extreme) and not other.has(extreme)


def _differs_from_zero(difference: Polynomial, case: Case) -> bool:
    """Above or below it everywhere, or no multiple of what all its coefficients have in common."""
    common = math.gcd(*(factor for monomial, factor in difference.terms.items() if monomial))
    is_between = common > 1 and difference.offset % common != 0
    return is_between or case.at_least(difference, 1) or case.at_least(-difference, 1)


_APART = (sympy.StrictGreaterThan, sympy.StrictLessThan, sympy.Unequality)
_ORDERS = (sympy.GreaterThan, sympy.StrictGreaterThan, sympy.LessThan, sympy.StrictLessThan)
_TESTS: Mapping[type, Callable[[Polynomial, Case], bool]] = {
    sympy.Equality: lambda difference, case: not difference.terms,
    sympy.Unequality: _differs_from_zero,
    sympy.GreaterThan: lambda difference, case: case.at_least(difference, 0),
    sympy.StrictGreaterThan: lambda difference, case: case.at_least(difference, 1),
    sympy.LessThan: lambda difference, case: case.at_least(-difference, 0),
    sympy.StrictLessThan: lambda difference, case: case.at_least(-difference, 1),
}
