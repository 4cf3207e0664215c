"""Sizes at which one equality of a trace does not hold, and all others do: whoever refuses them asks for that one."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

import sympy

from .expressions import Sizes
from .implication import decide
from .trace import Trace, meets, with_relations, within_known

_WAYS = 27  # that are tried
_TIMES = (0, 1, -1)
_BESIDE, _OF_EACH = 8, 4  # other conditions of one line, and the sizes that are tried for each


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


def sizes_of_two_answers(trace: Trace, condition: sympy.Basic, line: str) -> Iterator[Sizes]:
    """Sizes at which both a condition is answered otherwise than in the trace, and another that the same line asked.

    An operator that refuses sizes at which one of them is may take those: a single entry is broadcast, and where it was
    one in the trace, as many as the other has are taken as well.
    """
    guards: dict[sympy.Basic, str] = {
        trace.replaced(with_relations(trace, guard.expr)): trace.lines.get(guard.expr, "")
        for guard in trace.shape_env.guards
        if guard.expr.free_symbols <= trace.hints.keys()
    }
    of_line = [other for other in guards if guards[other] == line]
    sides = condition.args if isinstance(condition, sympy.Eq) else ()
    singles = [sympy.Ne(side, 1) for side in sides if side.free_symbols]
    for other in [other for other in dict.fromkeys((*singles, *of_line)) if other not in (condition, sympy.true)][
        :_BESIDE
    ]:
        symbols = condition.free_symbols | other.free_symbols
        elsewhere = [sympy.Not(guard) for guard in guards if guards[guard] != line and guard.free_symbols & symbols]
        found = decide(within_known(trace, sympy.Or(condition, other, *elsewhere)), trace.domain).counterexamples
        yield from [sizes for sizes in found if meets(trace.known, trace, sizes)][:_OF_EACH]


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
