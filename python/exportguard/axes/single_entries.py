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


def answers_beside_one(trace: Trace, guard: sympy.Basic) -> tuple[Answer, ...]:
    """What the model answers where one of the sizes that operators alone want to be equal is 1.

    The program may have the size of either in the place of the other, and of what is made of both. Whether the file is
    right there tells no trace: of a single entry in the place of several it may be all the same which is read.
    """
    is_of_equalities = all(isinstance(part, sympy.Eq) for part in guard.atoms(Relational))
    return tuple(_answers(trace, guard)) if is_of_equalities and guard not in trace.tests else ()


def _answers(trace: Trace, guard: sympy.Basic) -> Iterator[Answer]:
    hints = {symbol: trace.hints[symbol] for symbol in guard.free_symbols if symbol in trace.hints}
    points = [{**hints, symbol: 1} for symbol in sorted(hints, key=str)]
    tied = [point for point in sizes_apart(trace, guard, points) if point not in points]
    for point in (*points, *tied):
        answer = trace.trial.answer(trace.all_sizes(point))
        if answer is not None:
            yield answer


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
    holds = [condition for condition in (bound.holds, *others[:_SEVERAL]) if condition is not None]
    return replace(bound, holds=sympy.And(*holds)) if others else bound
