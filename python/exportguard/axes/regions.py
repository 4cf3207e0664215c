"""Parts of the sizes that were asked for, in symbols that stand for the axes of the inputs and not for one trace's."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import sympy
import torch

from exportguard.dynamic_shapes import LeafShape, ends_of
from exportguard.example import Example, Place
from exportguard.signature import TracedInputs

from .expressions import Range, Sizes, symbols_of
from .implication import Answer, Decision, decide
from .monotone import sizes_that_hold


def symbol_of(place: Place) -> sympy.Symbol:
    """What stands for the size at a place; unlike torch's symbols it may be 0."""
    return sympy.Symbol(f"size_{place.leaf}_{place.axis}", integer=True, nonnegative=True)


def place_of(symbol: sympy.Symbol) -> Place:
    """Where the size is that such a symbol stands for."""
    leaf, axis = str(symbol).removeprefix("size_").split("_")
    return Place(int(leaf), int(axis))


@dataclass(frozen=True)
class Axes:
    """The axes that may change: the sizes asked for of each, and which of them follow from others by their names."""

    domain: Mapping[sympy.Symbol, Range]
    same: Mapping[sympy.Symbol, sympy.Expr]

    @classmethod
    def of(cls, example: Example, with_none: Container[Place]) -> Axes:
        """Those that an example asks for; `with_none` are those whose sizes of 0 count as asked for."""
        domain = {}
        for number, shape in enumerate(example.shapes):
            for axis, asked in shape.axes.items():
                place = Place(number, axis)
                low, high = ends_of(asked)
                least = low if low else int(place not in with_none)
                if not isinstance(asked, int):
                    domain[symbol_of(place)] = Range(least, high)
        same = {
            symbol_of(relation.place): sympy.Add(*map(symbol_of, relation.sum_of)) for relation in example.relations
        }
        return cls(domain, same)

    def reduced(self, condition: sympy.Basic) -> sympy.Basic:
        """A condition in those symbols alone that follow from no others."""
        for _ in range(3):  # a sum of sizes that follow from others themselves
            condition = condition.xreplace(self.same)
        return condition


@dataclass(frozen=True)
class Region:
    """The sizes at which all conditions hold; without any, all that were asked for."""

    conditions: tuple[sympy.Basic, ...] = ()

    def within(self, condition: sympy.Basic) -> Region:
        """Its sizes at which a further condition holds."""
        return Region((*self.conditions, condition))

    def implies(self, condition: sympy.Basic, axes: Axes) -> bool:
        """Whether a condition is known to hold for all of its sizes."""
        return self._decision(condition, axes).answer == Answer.PROVED

    def breaking(self, condition: sympy.Basic, axes: Axes) -> Sizes | None:
        """Sizes of its own at which a condition does not hold, if some are found: larger ones than 1, of which torch
        makes constants, where there are such."""
        found = (self._decision(condition, axes, least).counterexamples for least in (2, 0))
        return next((sizes for points in found for sizes in points), None)

    def is_one_size(self, symbol: sympy.Symbol, size: int, axes: Axes) -> bool:
        """Whether none of its sizes has another number along an axis."""
        if self.implies(sympy.Eq(symbol, size), axes):
            return True
        known, domain = self._known(axes)
        reduced = axes.reduced(symbol)
        if not isinstance(reduced, sympy.Symbol):
            return False
        ends = domain[reduced]
        sides = [Range(ends.low, _least(size - 1, ends.high)), Range(max(ends.low, size + 1), ends.high)]
        empty = sympy.Or(*map(sympy.Not, known))
        others = [{**domain, reduced: side} for side in sides if side.high is None or side.low <= side.high]
        return all(decide(empty, other).answer == Answer.PROVED for other in others)

    def _decision(self, condition: sympy.Basic, axes: Axes, least: int = 0) -> Decision:
        """Whether a condition holds for its sizes, of those from `least` on along each axis that has some."""
        known, ends = self._known(axes)
        domain = {symbol: Range(max(end.low, _least(least, end.high)), end.high) for symbol, end in ends.items()}
        return decide(sympy.Or(axes.reduced(condition), *map(sympy.Not, known)), domain)

    def _known(self, axes: Axes) -> tuple[list[sympy.Basic], dict[sympy.Symbol, Range]]:
        """The conditions, and the domain as far as each of them alone narrows it."""
        known = [axes.reduced(entry) for entry in self.conditions]
        domain = dict(axes.domain)
        for entry in known:
            narrow(domain, entry)
        return known, domain

    def as_traced(self, traced: TracedInputs) -> list[sympy.Basic]:
        """Its conditions in the symbols of a trace."""
        sizes = sizes_of_places(traced)
        return [condition.xreplace(sizes) for condition in self.conditions]


EVERYWHERE = Region()


def _least(size: int, end: int | None) -> int:
    return size if end is None else min(size, end)


def narrow(domain: dict[sympy.Symbol, Range], condition: sympy.Basic) -> None:
    """Takes those sizes out of a domain at which a condition on one of them does not hold, if that leaves a range."""
    symbols = symbols_of(condition)
    (symbol,) = symbols if len(symbols) == 1 else (None,)
    if symbol in domain:
        domain[symbol] = sizes_that_hold(condition, domain) or domain[symbol]


def places_of_symbols(traced: TracedInputs, example: Example) -> dict[sympy.Symbol, sympy.Symbol]:
    """What stands for each symbol of a trace: the first axis, of those that were asked for, that it is the size of."""
    found: dict[sympy.Symbol, sympy.Symbol] = {}
    for number, shape in enumerate(example.shapes):
        for axis in shape.axes:
            size = traced.sizes[number][axis] if traced.sizes[number] else None
            if isinstance(size, sympy.Symbol):
                found.setdefault(size, symbol_of(Place(number, axis)))
    return found


def sizes_of_places(traced: TracedInputs) -> dict[sympy.Symbol, sympy.Expr]:
    """The size of each axis in a trace, by what stands for it."""
    return {
        symbol_of(Place(number, axis)): size
        for number, leaf in enumerate(traced.sizes)
        for axis, size in enumerate(leaf)
    }


def without_small_axes(example: Example) -> Example:
    """The example without what is asked of axes of 0 or 1, of which torch makes constants."""
    return replace(example, shapes=[_without_small(shape) for shape in example.shapes])


def _without_small(shape: LeafShape) -> LeafShape:
    value = shape.leaf.value
    if not isinstance(value, torch.Tensor):
        return shape
    return replace(shape, axes={axis: asked for axis, asked in shape.axes.items() if value.shape[axis] > 1})
