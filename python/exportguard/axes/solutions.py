"""Sizes at which several conditions hold, looked for among small ones, usual ones and those around their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import sympy

from .evaluation import Evaluation, Points, points_where
from .expressions import Domain, Range, Sizes, symbols_of
from .implication import decide, sizes_to_try
from .regions import narrow

_IN_A_ROW = 640  # sizes of one axis that are looked at
_OF_EACH = 160  # of those that meet what is asked of it alone
_FEW, _FAR = 40, 2**14  # where fewer are met, larger ones are looked at up to so many
_COMBINED = 40_000  # sizes of all
_PAIR, _FEW_OF_OTHERS = 2, 2


def solutions(conditions: Sequence[sympy.Basic], domain: Domain) -> Iterator[Sizes]:
    """Sizes of the domain, of all symbols that the conditions have, at which each is known to hold; small ones first.

    There may be some where none are found.
    """
    symbols = sorted({symbol for condition in conditions for symbol in symbols_of(condition)}, key=str)
    if not symbols or not all(symbol in domain for symbol in symbols):
        return
    spans = {symbol: domain[symbol] for symbol in symbols}
    for condition in conditions:
        narrow(spans, condition)
    of_several = [condition for condition in conditions if len(symbols_of(condition)) > 1]
    choices = []
    for symbol in symbols:
        alone = [condition for condition in conditions if symbols_of(condition) == {symbol}]
        choices.append(_that_meet(alone, symbol, spans[symbol]))
    tests = [Evaluation(condition, symbols) for condition in of_several]
    for points in _combined(choices):
        yield from (dict(zip(symbols, sizes, strict=True)) for sizes in points_where(tests, points))


def _combined(choices: Sequence[Sequence[int]]) -> Iterator[Points]:
    """So many combinations of what each symbol may be: of three or more, two have many sizes and the others few.

    A condition is seldom about more of them: in `batch * h * w == batch * (h // 16) * (w // 16) * 256` one is a factor.
    """
    free = min(len(choices), _PAIR)
    parts = [*itertools.combinations(range(len(choices)), free)]
    others = _FEW_OF_OTHERS ** (len(choices) - free)
    count = math.floor((_COMBINED / (len(parts) * others)) ** (1 / free))
    for part in parts:
        yield Points([some[: count if place in part else _FEW_OF_OTHERS] for place, some in enumerate(choices)])


def sizes_where(conditions: Sequence[sympy.Basic], domain: Domain, count: int) -> list[Sizes]:
    """So many sizes at the most at which all conditions hold: those that `decide` tells, or else solutions."""
    told = decide(sympy.Or(*map(sympy.Not, conditions)), domain).counterexamples
    return [*itertools.islice(told or solutions(conditions, domain), count)]


def _that_meet(conditions: Sequence[sympy.Basic], symbol: sympy.Symbol, ends: Range) -> list[int]:
    """Sizes of one symbol at which all conditions on it hold: small ones and some others."""
    numbers = {int(atom) for condition in conditions for atom in condition.atoms(sympy.Integer)}
    near = sorted({*range(ends.low, ends.low + _IN_A_ROW), *sizes_to_try(ends, numbers)})
    tests = [Evaluation(condition, [symbol]) for condition in conditions]

    def met(sizes: Sequence[int], count: int) -> list[int]:
        return [size for (size,) in itertools.islice(points_where(tests, Points([sizes])), count)]

    found = met([size for size in near if ends.holds(size)], _OF_EACH)
    beyond = range(ends.low + _IN_A_ROW, ends.low + _FAR if ends.high is None else min(ends.low + _FAR, ends.high + 1))
    further = met(beyond, _FEW - len(found)) if len(found) < _FEW else []
    return sorted({*found, *further})
