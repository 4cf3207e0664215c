"""Sizes beyond those that a question leads to, of models of the user's own.

A model may refuse those near a bound and take multiples of the numbers that its code has: windows of 12 rows take 24
and 36 rows, and none of 13 to 17. A bound is the model's own only where it refuses these as well. And code may do
something else while it is traced, so that nothing is asked at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import sympy
from torch.utils._sympy.functions import Mod

from .bound import AxisBound, Kind
from .expressions import Sizes, parts
from .solutions import solutions
from .symbolic_sizes import Asked
from .trace import Trace, axes_asked, domain_from_one, meets, with_relations

_BEYOND = (1, 2, 5)  # tokens that a window has no more
_MULTIPLES = (1, 2, 3, 5)
_LARGEST = 512  # a size that is soon computed
_MOST = 12  # points
_FOUND, _APART = 8, 5  # solutions that are tried, and how many lie between them
_FOLLOWED, _TURNED = 2, 6  # points, and how many questions of each way are answered otherwise
_WAYS, _RUNS = 16, 80  # that are followed behind a model's refusals, and sizes that are tried there
_NUMBERS, _RESTS = 6, 8  # at hand where a model refuses sizes: multiples are tried, and those with other ones as rests
_OTHERS = 16  # guards on several axes, beyond which sizes that meet them all are hardly found


def multiples_beyond(trace: Trace, condition: sympy.Basic) -> list[Sizes]:
    """Sizes that break a condition, of one axis and of all, for which the user's own code has a number.

    None for long programs and for models of installed packages, whose code has more numbers than could be tried.
    """
    is_tried = trace.trial.is_of_own_module and trace.trial.may_try_many
    points = _points(trace, condition) if is_tried else ()
    return [*{frozenset(sizes.items()): sizes for sizes in points}.values()][:_MOST]


def beside_the_rest(trace: Trace, condition: sympy.Basic, points: Sequence[Sizes]) -> list[Sizes]:
    """Sizes that break a condition, and no other that has to do with its axes; none where one of the points is so.

    A model that takes multiples of 14 alone refuses any others, whatever else it asks of them: `h == w` is its own
    bound only if it refuses 14 beside 28. What is asked of one of two equal sizes counts for both.
    """
    rest = [*dict.fromkeys(_rest(trace, condition))]
    if not rest or not all(_is_broken(trace, rest, sizes) for sizes in points):
        return []
    on_own = [other for other in rest if other.free_symbols <= condition.free_symbols]
    of_remainders = [other for other in on_own if isinstance(other, sympy.Eq) and _has_remainder(other)]
    assumed = trace.assumed_as_asked if trace.replaced(condition) == sympy.true else trace.assumed
    for others in (rest if len(rest) <= _OTHERS else [], on_own, of_remainders):
        wanted = [sympy.Not(condition), *assumed, *others]
        found = solutions(wanted, domain_from_one(trace)) if others else ()
        met = (sizes for sizes in found if meets(trace.known, trace, sizes))
        if first := [*itertools.islice(met, 0, _FOUND * _APART, _APART)]:
            return first
    return []


def behind_refusals(trace: Trace, wanted: Sequence[sympy.Basic], points: Sequence[Sizes]) -> list[Sizes]:
    """Sizes at which wanted conditions hold and that the model takes, though it refuses the points for what it asks.

    Behind `if h == w: return x`, a model may ask for multiples of 14, and no trace says so. So it is asked what it asks
    until it refuses a point. At sizes that answer one of these questions otherwise, and all before it alike, it goes
    another way, which is followed in turn.
    """
    gone: dict[frozenset[sympy.Basic], Asked] = {}
    ways = itertools.chain(_with_other_answers(trace, wanted, points, gone), _with_numbers(trace, wanted, gone))
    tried = itertools.islice(ways, _RUNS)
    return [*itertools.islice((each for each in tried if trace.trial.refuses(trace.all_sizes(each)) is False), 1)]


def _with_other_answers(
    trace: Trace, wanted: Sequence[sympy.Basic], points: Sequence[Sizes], gone: dict[frozenset[sympy.Basic], Asked]
) -> Iterator[Sizes]:
    """Sizes at which the model goes another way than at those that it refuses, of which `gone` gets what it asks."""
    waiting = [*points[:_FOLLOWED]]
    while waiting and len(gone) < _WAYS:
        asked = trace.trial.asked_at(trace.all_sizes(waiting.pop(0)))
        known = [entry for entry in asked.conditions if entry.free_symbols <= trace.domain.keys()]
        if frozenset(known) in gone:
            continue
        gone[frozenset(known)] = asked._replace(conditions=known)
        for place in range(len(known) - 1, max(len(known) - 1 - _TURNED, -1), -1):
            for sizes in _met(trace, [*wanted, *known[:place], sympy.Not(known[place])]):
                yield sizes
                waiting.append(sizes)


def _with_numbers(
    trace: Trace, wanted: Sequence[sympy.Basic], gone: Mapping[frozenset[sympy.Basic], Asked]
) -> Iterator[Sizes]:
    """Sizes that are multiples of a number that is at hand where the model refuses others, or another one more; but for
    its last question they answer all others as those."""
    for known, numbers, *_ in gone.values():
        own = sorted({symbol for condition in wanted or known for symbol in condition.free_symbols}, key=str)
        rests = [(number, rest) for number in numbers[:_NUMBERS] for rest in numbers if rest < number]
        for number, rest in [*((number, 0) for number in numbers[:_NUMBERS]), *rests[:_RESTS]]:
            yield from _met(trace, [*wanted, *known[:-1], *(sympy.Eq(Mod(symbol, number), rest) for symbol in own)])


def _met(trace: Trace, conditions: Sequence[sympy.Basic]) -> Iterator[Sizes]:
    """Sizes at which the conditions hold within what is known, if some are found."""
    solved = solutions([*conditions, *trace.assumed_as_asked], domain_from_one(trace))
    return itertools.islice((sizes for sizes in solved if meets(trace.known, trace, sizes)), 1)


def _rest(trace: Trace, condition: sympy.Basic) -> Iterator[sympy.Basic]:
    """The guards that have to do with the axes of a condition; of a relation those on one of them, for each."""
    own = condition.free_symbols
    is_relation = trace.replaced(condition) == sympy.true
    for guard in trace.shape_env.guards:
        other = with_relations(trace, guard.expr) if is_relation else trace.replaced(with_relations(trace, guard.expr))
        if other == condition or not other.free_symbols & own or not other.free_symbols <= {*trace.hints}:
            continue
        if not is_relation:
            yield other
        elif len(other.free_symbols) == 1:
            (symbol,) = other.free_symbols
            yield from (other.xreplace({symbol: one}) for one in sorted(own, key=str))


def _is_broken(trace: Trace, conditions: Sequence[sympy.Basic], sizes: Sizes) -> bool:
    known = trace.all_sizes(sizes)
    return any(trace.value(condition, known) is False for condition in conditions)


def _has_remainder(condition: sympy.Basic) -> bool:
    return any(type(part).__name__ in ("Mod", "PythonMod") for part in parts(condition))


def beyond_windows(trace: Trace, condition: sympy.Basic) -> list[Sizes]:
    """Sizes that break a condition where layers of a cache have as many tokens as they keep, and others have more.

    A call whose layers differ in anything else is refused, whatever is asked of them.
    """
    axes = axes_asked(trace.traced, trace.example.shapes)
    kept = {symbol: shape.kept[axis] for shape, axis, symbol in axes if axis in shape.kept}
    others = [symbol for symbol in condition.free_symbols - kept.keys() if symbol in trace.free_symbols()]
    if kept.keys().isdisjoint(condition.free_symbols):
        return []
    most = max(kept.values())
    points = [{**kept, symbol: most + more} for more in _BEYOND for symbol in sorted(others, key=str)]
    return [
        point
        for point in points
        if trace.is_in_domain(point) and trace.value(condition, trace.all_sizes(point)) is False
    ]


def bounds_of_nothing_asked(trace: Trace) -> list[AxisBound]:
    """Where a short program of the user's own model is wrong at other sizes although nothing was asked of them.

    Code may do something else while it is traced (`torch.compiler.is_compiling()`), or catch what only a trace raises.
    """
    if not (trace.trial.is_of_own_module and trace.trial.may_try_many):
        return []
    hints = {symbol: trace.hints[symbol] for symbol in trace.free_symbols()}
    tried = ({symbol: 2 * size + 3 for symbol, size in hints.items()}, {s: size + 1 for s, size in hints.items()})
    for sizes in tried:
        if sizes and trace.is_in_domain(sizes) and trace.differs(sizes):
            condition = sympy.And(*(sympy.Eq(symbol, size) for symbol, size in hints.items()))
            return [
                AxisBound(
                    condition=trace.worded(condition),
                    symbols=frozenset(map(str, hints)),
                    kind=Kind.WRONG,
                    sizes=trace.told(sizes),
                    holds=condition,
                    point=trace.by_name(sizes),
                )
            ]
    return []


def _points(trace: Trace, condition: sympy.Basic) -> Iterator[Sizes]:
    free = trace.free_symbols()
    own = [symbol for symbol in free if symbol in condition.free_symbols]
    for size in _sizes(trace):
        for sizes in (dict.fromkeys(own, size), dict.fromkeys(free, size)):
            known = trace.all_sizes(sizes)
            if (
                sizes
                and trace.is_in_domain(sizes)
                and trace.value(condition, known) is False
                and meets(trace.known, trace, sizes)
            ):
                yield sizes


def _sizes(trace: Trace) -> list[int]:
    own = [entry for entry in trace.decisions if entry.is_of_model and entry.is_own]
    asked = {int(number) for entry in own for number in entry.condition.atoms(sympy.Integer)}
    numbers = sorted({abs(number) for number in asked.union(*(entry.in_code for entry in own))} - {0, 1})
    return sorted({number * times for number in numbers for times in _MULTIPLES if number * times <= _LARGEST})
