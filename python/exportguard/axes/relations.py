"""Sizes at which one equality of a trace does not hold, and all others do: whoever refuses them asks for that one."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

import sympy

from .expressions import Sizes
from .trace import Trace, meets

_WAYS = 27  # that are tried
_TIMES = (0, 1, -1)
_LARGER = 18  # a size that few tests take for small, and that is soon computed
_DRAWS, _IN_STEP = 400, 60  # sizes that are drawn, and those that are tried of them


def sizes_apart(trace: Trace, equality: sympy.Basic, points: Sequence[Sizes]) -> Sequence[Sizes]:
    """The points, each with the sizes of the axes that other equalities tie to it.

    torch writes one size for another as soon as they were found equal. An equality that was found before is as it was
    asked; one that was found afterwards may have been asked of what this one has put in its place. An operator refuses
    the point wherever that is so; behind a test of the model each way is tried.
    """
    guards = [difference for guard in trace.shape_env.guards if (difference := _linear(guard.expr)) is not None]
    asked = _linear(equality)
    if asked is None or asked not in guards:
        return points
    place = guards.index(asked)
    before, later = guards[:place], _tied(guards[place + 1 :], before=guards[: place + 1])
    is_test = equality in trace.tests
    found = [
        sizes
        for point in [*points, *(_around_the_example(trace, asked) if is_test else ())]
        for way in (_ways(len(later)) if is_test else [(0,) * len(later)])
        if (sizes := _with_tied(trace, point, asked, before, dict(zip(later, way, strict=True)))) is not None
    ]
    return found or points


def sizes_in_step(trace: Trace, condition: sympy.Basic) -> Iterator[Sizes]:
    """Sizes of all axes that break a condition, the same at each call; many are halves or doubles of one another.

    What an operator refuses beside the sizes of the example it may take beside others: where a single entry comes of
    them, which is broadcast, or as many as those that were so in the trace. And what has an end in common, as even
    sizes have, may be right by luck.
    """
    symbols, draw = trace.free_symbols(), random.Random(0)
    drawn = (_in_step(trace, symbols, draw) for _ in range(_DRAWS))
    apart = {tuple(sizes.values()): sizes for sizes in drawn if trace.is_in_domain(sizes)}
    broken = (sizes for sizes in apart.values() if trace.value(condition, trace.all_sizes(sizes)) is False)
    yield from itertools.islice((sizes for sizes in broken if meets(trace.known, trace, sizes)), _IN_STEP)


def _in_step(trace: Trace, symbols: Sequence[sympy.Symbol], draw: random.Random) -> Sizes:
    size = draw.randint(2, 9)
    near = (size, size, size, size // 2, (size + 1) // 2, 2 * size, 2 * size + 1, size + 1, size - 1)
    lows = {symbol: trace.domain[symbol].low for symbol in symbols}
    return {
        symbol: draw.choice((*near, trace.hints[symbol], low, draw.randint(low, low + _LARGER)))
        for symbol, low in lows.items()
    }


@functools.lru_cache(maxsize=4096)  # it is asked of all guards for each
def _linear(guard: sympy.Basic) -> sympy.Expr | None:
    """What is 0 where an equality holds, as `a - b - c`; None of what is none, or is none of sums of sizes."""
    if not isinstance(guard, sympy.Eq):
        return None
    difference = sympy.expand(guard.lhs - guard.rhs)
    symbols = difference.free_symbols
    parts = [term.as_coeff_Mul()[1] for term in sympy.Add.make_args(difference)]
    return difference if symbols and all(part.is_number or part in symbols for part in parts) else None


def _tied(later: Sequence[sympy.Expr], *, before: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    """Those equalities that have to do with the last one of `before`, by themselves or by others."""
    symbols, size = {*before[-1].free_symbols}, 0
    while size != len(symbols):
        size = len(symbols)
        for difference in (*before, *later):
            if difference.free_symbols & symbols:
                symbols |= difference.free_symbols
    return [difference for difference in dict.fromkeys(later) if difference.free_symbols & symbols]


def _ways(count: int) -> Sequence[Sequence[int]]:
    """How often this equality stands in each of the later ones: all of the ways, or several of many."""
    if len(_TIMES) ** count <= _WAYS:
        return list(itertools.product(_TIMES, repeat=count))
    draw = random.Random(0)
    return [[times] * count for times in _TIMES] + [draw.choices(_TIMES, k=count) for _ in range(_WAYS - len(_TIMES))]


def _around_the_example(trace: Trace, asked: sympy.Expr) -> Iterator[Sizes]:
    """The sizes of the example with one of the equality's one larger: there is room for what others are made of."""
    sizes = {symbol: trace.hints[symbol] for symbol in sorted(asked.free_symbols, key=str) if symbol in trace.hints}
    if len(sizes) == len(asked.free_symbols):
        yield from ({**sizes, symbol: size + 1} for symbol, size in sizes.items())


def _with_tied(
    trace: Trace, point: Sizes, asked: sympy.Expr, before: Sequence[sympy.Expr], later: dict[sympy.Expr, int]
) -> Sizes | None:
    """A point with the sizes that follow from it by the other equalities; None if it contradicts them."""
    found = dict(point)
    by = asked.xreplace(point)
    pending = [*before, *(difference + times * by for difference, times in later.items())]
    while pending:
        known = [one for one in pending if len(one.free_symbols - found.keys()) <= 1]
        if not known:
            touching = [one for one in pending if one.free_symbols & found.keys()]
            if not touching:
                return found  # the others have nothing to do with it
            free = min(touching[0].free_symbols - found.keys(), key=str)
            found[free] = trace.hints.get(free, 2)
            continue
        for one in known:
            pending.remove(one)
            if one.free_symbols & found.keys() and not _is_settled(trace, one, found):
                return None
    return found


def _is_settled(trace: Trace, difference: sympy.Expr, found: dict[sympy.Symbol, int]) -> bool:
    """Whether an equality holds at the sizes, with what it says of one that they lack, which is added to them.

    Not with a size of 1 where that was not asked for: eager mode broadcasts it, so it is equal to any.
    """
    rest = difference.xreplace(found)
    if rest.is_number:
        return bool(rest == 0)
    (symbol,) = rest.free_symbols
    size = -rest.xreplace({symbol: sympy.Integer(0)}) / rest.coeff(symbol)
    low = trace.domain[symbol].low if symbol in trace.domain else 2
    if not size.is_Integer or size < low:
        return False
    found[symbol] = int(size)
    return True
