"""Sizes that the user's own code refuses, where it refuses others that answer a test likewise, or takes them.

`if n > 4 or n % 2 == 0: … else: raise` is traced as `n > 4`, and right at 4 as well; nothing in it refuses 3. What the
model asks until it raises says which sizes go the same way: all of them are refused, and no others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import sympy

from .bound import AxisBound, Kind
from .expressions import Range, Sizes, symbols_of
from .implication import Answer, decide
from .limits import KINDS
from .solutions import solutions
from .trace import Trace, domain_from_one, meets

_BOUNDS = 16
_CONDITIONS = 10  # of one way: a file asks for all of them
_WAYS = 40  # that are looked for, without data
_AXES = 3  # of which sizes are found that go another way


def is_raised_at(trace: Trace, sizes: Sizes) -> bool:
    """Whether it is the user's own code that refuses these sizes, and what it asks says which others."""
    return trace.trial.is_of_own_module and bool(_raised_way(trace, trace.all_sizes(sizes)))


def bounds_of_refused_ways(trace: Trace, bounds: Sequence[AxisBound]) -> list[AxisBound]:
    """One for each way on which the model raises, and that no bound tells of."""
    if not trace.trial.is_of_own_module:
        return []
    told = [bound.holds for bound in bounds if bound.kind in KINDS and bound.holds is not None]
    # What else is excluded may be another way, which is looked at by itself where tests of sizes become branches.
    others = [bound.holds for bound in bounds if bound.excludes_what_was_asked and bound.holds is not None]
    excluded = [one for one in others if one not in told] + _fixed_axes(trace)
    found: list[AxisBound] = []
    for sizes in _sizes_of_ways(trace, told, excluded):
        way = [one for one in _raised_way(trace, sizes) if one not in told]
        if not way or any(meets(way, trace, agreed) for agreed in trace.trial.agreed_sizes()):
            continue
        holds = sympy.Or(*map(sympy.Not, way))
        told.append(holds)
        found.append(
            AxisBound(
                condition=trace.worded(holds, is_relation=True),
                symbols=frozenset(str(symbol) for symbol in holds.free_symbols),
                kind=Kind.OWN,
                sizes=trace.told(sizes),
                holds=holds,
            )
        )
        if len(found) == _BOUNDS:
            break
    return found


def _fixed_axes(trace: Trace) -> list[sympy.Basic]:
    """That axes have the size which the program has for a constant, and no other."""
    fixed = (symbol for symbol in trace.hints if not trace.replaced(symbol).free_symbols)
    return [sympy.Eq(symbol, trace.hints[symbol]) for symbol in fixed]


def _sizes_of_ways(trace: Trace, told: Sequence[sympy.Basic], excluded: Sequence[sympy.Basic]) -> Iterator[Sizes]:
    """Those that the model was seen to refuse, and some of other ways than it is known to go; `told` is what sizes are
    refused for, and is added to as more is found. None of them are `excluded`."""
    for sizes in trace.trial.refused_sizes():
        if 0 not in sizes.values() and meets([*told, *excluded], trace, sizes):
            yield sizes
    if not trace.tests or not trace.trial.may_try_many or len(trace.free_symbols()) > _AXES:
        return
    gone: list[sympy.Basic] = []
    next_sizes: Sizes | None = trace.all_sizes({})
    while next_sizes is not None and len(gone) < _WAYS:
        way = trace.trial.way_at(next_sizes)
        conditions = None if way is None else _open_conditions(trace, way.of_code)
        if not conditions:
            return
        gone.append(sympy.Or(*map(sympy.Not, conditions)))
        yield next_sizes
        next_sizes = _beyond(trace, gone, [*told, *excluded])


def _beyond(trace: Trace, gone: Sequence[sympy.Basic], told: Sequence[sympy.Basic]) -> Sizes | None:
    """Sizes that go none of these ways, and are not refused as far as is known."""
    spans = domain_from_one(trace)
    larger = {symbol: Range(max(span.low, 2), span.high) for symbol, span in spans.items()}
    wanted = [*gone, *told, *trace.assumed_as_asked]
    found = itertools.chain.from_iterable(solutions(wanted, domain) for domain in (larger, spans))
    complete = (trace.all_sizes(sizes) for sizes in found)
    return next((sizes for sizes in complete if meets([*gone, *trace.known], trace, sizes)), None)


def _raised_way(trace: Trace, sizes: Sizes) -> Sequence[sympy.Basic]:
    """What the user's own code asks of sizes until it raises; nothing if it does not, or that cannot be told."""
    way = trace.trial.way_at(sizes)
    conditions = _open_conditions(trace, way.of_code) if way is not None and way.is_raised else None
    return _without_implied(conditions) if conditions and meets(conditions, trace, sizes) else ()


def _without_implied(conditions: Sequence[sympy.Basic]) -> Sequence[sympy.Basic]:
    """Those that do not follow from the others, as what an operator asks of sizes for how its result lies in memory."""
    kept = [*conditions]
    for condition in conditions:
        others = [one for one in kept if one is not condition]
        if others and isinstance(condition, sympy.Eq) and _is_always_true(sympy.Or(condition, *map(sympy.Not, others))):
            kept = others
    return kept


def _open_conditions(trace: Trace, conditions: Sequence[sympy.Basic]) -> Sequence[sympy.Basic] | None:
    """Those that not all sizes answer alike; None if they are many, or on something else than sizes of inputs."""
    if any(not condition.free_symbols <= trace.domain.keys() for condition in conditions):
        return None
    open_ones = (one for one in dict.fromkeys(conditions) if not _is_always_true(one))
    found = [*itertools.islice(open_ones, _CONDITIONS + 1)]
    return found if len(found) <= _CONDITIONS else None


@functools.lru_cache(maxsize=4096)
def _is_always_true(condition: sympy.Basic) -> bool:
    return decide(condition, dict.fromkeys(symbols_of(condition), Range(0))).answer == Answer.PROVED
