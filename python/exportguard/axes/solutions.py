"""Sizes at which several conditions hold, looked for among small ones, usual ones and those around their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import sympy

from .expressions import Domain, Evaluation, Range, Sizes
from .implication import sizes_to_try
from .regions import narrow

_IN_A_ROW = 640  # sizes of one axis that are looked at
_OF_EACH = 160  # of those that meet what is asked of it alone
_FEW, _FAR = 40, 2**14  # where fewer are met, larger ones are looked at up to so many
_COMBINED = 40_000  # sizes of all


def solutions(conditions: Sequence[sympy.Basic], domain: Domain) -> Iterator[Sizes]:
    """Sizes of the domain, of all symbols that the conditions have, at which each is known to hold; small ones first.

    There may be some where none are found.
    """
    symbols = sorted({symbol for condition in conditions for symbol in condition.free_symbols}, key=str)
    if not symbols or not all(symbol in domain for symbol in symbols):
        return
    spans = {symbol: domain[symbol] for symbol in symbols}
    for condition in conditions:
        narrow(spans, condition)
    of_several = [condition for condition in conditions if len(condition.free_symbols) > 1]
    choices = []
    for symbol in symbols:
        alone = [condition for condition in conditions if condition.free_symbols == {symbol}]
        choices.append(_that_meet(alone, symbol, spans[symbol]))
    count = math.floor(_COMBINED ** (1 / len(symbols)))
    tests = [Evaluation(condition, symbols) for condition in of_several]
    found = (dict(zip(symbols, each, strict=True)) for each in itertools.product(*(some[:count] for some in choices)))
    yield from (sizes for sizes in found if all(test(sizes) is True for test in tests))


def _that_meet(conditions: Sequence[sympy.Basic], symbol: sympy.Symbol, ends: Range) -> list[int]:
    """Sizes of one symbol at which all conditions on it hold: small ones and some others."""
    numbers = {int(atom) for condition in conditions for atom in condition.atoms(sympy.Integer)}
    near = sorted({*range(ends.low, ends.low + _IN_A_ROW), *sizes_to_try(ends, numbers)})
    tests = [Evaluation(condition, [symbol]) for condition in conditions]

    def met(sizes: Iterable[int], count: int) -> list[int]:
        found = (size for size in sizes if ends.holds(size) and all(test({symbol: size}) is True for test in tests))
        return [*itertools.islice(found, count)]

    found = met(near, _OF_EACH)
    further = met(range(ends.low + _IN_A_ROW, ends.low + _FAR), max(_FEW - len(found), 0))
    return sorted({*found, *further})
