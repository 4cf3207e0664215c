"""Sizes at which one equality of a trace does not hold, and all others do: whoever refuses them asks for that one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import sympy

from .expressions import Sizes
from .trace import Trace

_Pair = tuple[sympy.Symbol, sympy.Symbol]
_WAYS = 16  # that are tried


def sizes_apart(trace: Trace, equality: sympy.Basic, points: Sequence[Sizes]) -> Sequence[Sizes]:
    """The points, each with the sizes of the axes that were found equal to one side or the other before.

    What was found equal to them afterwards belongs to one side, and torch has one symbol for both by then. An operator
    refuses the point wherever that goes; behind a test of the model each way is tried that it may go.
    """
    sides = _pair_of(equality)
    pairs = [pair for guard in trace.shape_env.guards if (pair := _pair_of(guard.expr)) is not None]
    if sides is None or sides not in pairs:
        return points
    place = pairs.index(sides)
    ends = {side: _joined(pairs[:place], {side}) for side in sides}
    both = set().union(*ends.values())
    later = _later_parts(pairs, place, both)
    ways = _ways(sides, len(later)) if equality in trace.tests else [sides[:1] * len(later)]
    return [
        {
            **point,
            **{symbol: point[end] for end in sides for symbol in ends[end]},
            **{symbol: point[end] for end, part in zip(way, later, strict=True) for symbol in part},
        }
        for point, way in itertools.product(points, ways)
    ]


def _ways(sides: _Pair, count: int) -> Sequence[Sequence[sympy.Symbol]]:
    """To which side each of some parts may go: all of the ways, or several of many."""
    if 2**count <= _WAYS:
        return list(itertools.product(sides, repeat=count))
    draw = random.Random(0)
    drawn = [draw.choices(sides, k=count) for _ in range(_WAYS - 2)]
    return [[sides[0]] * count, [sides[1]] * count, *drawn]


def _later_parts(pairs: Sequence[_Pair], place: int, both: set[sympy.Symbol]) -> list[set[sympy.Symbol]]:
    """The symbols that were made equal to those of both sides behind a place, in the parts that came to them."""
    known, apart, parts = {*both}, [*pairs[:place]], list[set[sympy.Symbol]]()
    for pair in pairs[place + 1 :]:
        new = {*pair} - known
        if len(new) == 1:
            parts.append(_joined(apart, new))
            known |= parts[-1]
        elif new:
            apart.append(pair)
    return parts


def _pair_of(guard: sympy.Basic) -> _Pair | None:
    """The two symbols that a guard makes equal, as `a + c == b + c` does; None of another one."""
    if not isinstance(guard, sympy.Eq):
        return None
    difference = sympy.expand(guard.lhs - guard.rhs)
    symbols = sorted(difference.free_symbols, key=str)
    if len(symbols) != 2 or difference not in (symbols[0] - symbols[1], symbols[1] - symbols[0]):
        return None
    return symbols[0], symbols[1]


def _joined(pairs: Iterable[_Pair], symbols: set[sympy.Symbol]) -> set[sympy.Symbol]:
    """All symbols that the pairs make equal to one of these."""
    found, size = {*symbols}, 0
    kept = [{*pair} for pair in pairs]
    while size != len(found):
        size = len(found)
        for pair in kept:
            if pair & found:
                found |= pair
    return found
