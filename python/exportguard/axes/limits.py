"""Sizes at which a program is not the model, in symbols that all programs of one export share.

The model itself refuses most of them, where a file has no operator that would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sympy
import torch

from exportguard.example import Place
from exportguard.signature import TracedInputs

from .bound import Answer, AxisBound, Kind
from .regions import EVERYWHERE, Region, symbol_of

#: At these sizes the program was seen to do something else than the model, or the model takes none of those tried,
#: or nobody looked, since they were not asked for.
KINDS = (Kind.OWN, Kind.WRONG, Kind.HIDDEN, Kind.NONE, Kind.EMPTY, Kind.SQUEEZED, Kind.SINGLE, Kind.ASKED)


class Limit(NamedTuple):
    """A condition outside of which a program is not the model: as users read it, and in the symbols of `regions`.

    A single entry is let through as well for each of the `answers` that a file has, and in the conditions that are
    `alike` if it has all of them.
    """

    told: str
    holds: sympy.Basic
    answers: Mapping[sympy.Basic, Sequence[Answer]] = {}
    alike: Sequence[sympy.Basic] = ()

    def settled(self, has: Callable[[Answer], bool]) -> sympy.Basic:
        """The condition, of a file of which it is known which answers it has."""
        right = {symbol for symbol, answers in self.answers.items() if answers and all(map(has, answers))}
        is_right = bool(right) and right == self.answers.keys()
        others = (sympy.Or(entry, *(_single(one) for one in entry.free_symbols if is_right)) for entry in self.alike)
        return sympy.And(sympy.Or(self.holds, *map(_single, right)), *others)


def _single(symbol: sympy.Basic) -> sympy.Basic:
    return sympy.Eq(symbol, 1)


def limits_of(traced: TracedInputs, bounds: Sequence[AxisBound], region: Region = EVERYWHERE) -> list[Limit]:
    """Those of the bounds of one program, which runs for the sizes of a region, that the sizes of its inputs tell."""
    symbols = _symbols(traced)
    elsewhere = [sympy.Not(condition) for condition in region.conditions]

    def within(condition: sympy.Basic) -> sympy.Basic:
        return sympy.Or(*elsewhere, condition.xreplace(symbols))

    return [
        Limit(
            bound.condition,
            within(bound.holds),
            {symbols[symbol]: answers for symbol, answers in bound.answers.items() if symbol in symbols},
            [within(condition) for condition in bound.alike if condition.free_symbols <= symbols.keys()],
        )
        for bound in bounds
        if bound.kind in KINDS and bound.holds is not None and bound.holds.free_symbols <= symbols.keys()
    ]


def _symbols(traced: TracedInputs) -> dict[sympy.Basic, sympy.Symbol]:
    """What stands for the size of an axis, by the symbol that a trace has for it alone."""
    return {
        size: symbol_of(Place(number, axis))
        for number, (leaf, sizes) in enumerate(zip(traced.leaves, traced.sizes, strict=True))
        if isinstance(leaf, torch.Tensor) and traced.taken[number]
        for axis, size in enumerate(sizes)
        if size.is_Symbol
    }
