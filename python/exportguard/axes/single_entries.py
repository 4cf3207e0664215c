"""A single entry beside several: operators that want two sizes to be equal broadcast it, and torch traces from 2 up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sympy
from sympy.core.relational import Relational

from .bound import Answer, AxisBound, Kind
from .relations import sizes_apart
from .trace import Trace, axes_asked

_OF_A_CONTAINER = "."  # in the name of a leaf
_SEVERAL = 32  # of one line: a check of each takes three nodes


def answers_beside_one(trace: Trace, guard: sympy.Basic) -> dict[sympy.Symbol, tuple[Answer, ...]]:
    """What the model answers where one of the sizes that operators alone want to be equal is 1, for each of them.

    The program may have the size of either in the place of the other, and of what is made of both. Whether the file is
    right there tells no trace: of a single entry in the place of several it may be all the same which is read.
    """
    if guard in trace.tests or not all(isinstance(part, sympy.Eq) for part in guard.atoms(Relational)):
        return {}
    symbols = sorted((symbol for symbol in guard.free_symbols if symbol in trace.hints), key=str)
    return {symbol: tuple(_answers(trace, guard, symbol)) for symbol in symbols}


def _answers(trace: Trace, guard: sympy.Basic, single: sympy.Symbol) -> Iterator[Answer]:
    """Beside several numbers of the others, and with other data, in a short program: both are a matter of luck else."""
    is_thorough = trace.trial.may_try_many
    for times, more in ((1, 0), (1, 1), (2, 3)) if is_thorough else ((1, 0),):
        others = {symbol: times * trace.hints[symbol] + more for symbol in guard.free_symbols & trace.hints.keys()}
        point = {**others, single: 1}
        tied = [other for other in sizes_apart(trace, guard, [point]) if other != point]
        for sizes in map(trace.all_sizes, (point, *tied)):
            if trace.value(guard, sizes) is False:  # what breaks nothing tells nothing
                yield from trace.trial.answers(sizes, is_thorough=is_thorough)


def with_others_of_its_line(trace: Trace, bound: AxisBound) -> AxisBound:
    """The bound, with what further operators of the same line ask: one layer after the other compares its own sizes.

    Whoever names no axis of a container, as the keys and values of a cache, leaves it to the export which are alike.
    """
    asked = trace.relations.get(bound.line, ()) if bound.kind == Kind.OWN else ()
    axes = axes_asked(trace.traced, trace.example.shapes) if asked else ()
    meant = {
        symbol
        for shape, axis, symbol in axes
        if shape.label(axis) is not None or _OF_A_CONTAINER not in shape.leaf.name
    }
    others = [condition for condition in asked if not condition.free_symbols.isdisjoint(meant)]
    return replace(bound, alike=tuple(others[:_SEVERAL])) if others else bound
