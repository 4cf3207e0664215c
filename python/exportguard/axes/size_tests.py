"""Tests on sizes, `if x.shape[0] > 4`: the model is traced once for each way that it may take.

torch.export traces one way through a model, and the guards that it notes say for which sizes that is the way. Where
they do not hold for all sizes that were asked for, the model is traced once more at sizes that break one of them, for
those sizes alone, and so on. What comes out is a tree: its leaves are programs, each proved for the sizes that lead to
it, its branches conditions on sizes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
from torch.export import ExportedProgram
from torch.utils._sympy.functions import Mod, PythonMod

from exportguard.errors import ExportError
from exportguard.example import Example, Place
from exportguard.inputs import CallInputs
from exportguard.signature import TracedInputs

from .bound import AxisBound, Kind
from .expressions import Sizes
from .limits import Limit, limits_of
from .regions import EVERYWHERE, Axes, Region, places_of_symbols, symbol_of, without_small_axes
from .resizing import InputsOfOtherSizes

logger = logging.getLogger(__name__)

_WAYS = 8  # programs for one model
_BESIDE = 5  # above the sizes of an example are looked at
_NUMBERS = 3  # sizes that one line is compared with


class OneWayError(ValueError):
    """The ways through a model cannot be put together; the text says why."""


@dataclass(frozen=True)
class Way:
    """What was traced with an example: a program, and what it takes for granted of sizes."""

    program: ExportedProgram
    example: Example
    inputs: TracedInputs
    bounds: tuple[AxisBound, ...]


@dataclass(frozen=True)
class Branch:
    """Which of two trees runs: `then` where the condition holds. It is in the symbols of `regions`."""

    condition: sympy.Basic
    then: Tree
    orelse: Tree
    line: str = ""


Tree = Way | Branch

#: Traces the model with an example, for the sizes of a region.
Trace = Callable[[Example, Region], Way]
#: Whether the program of a way does what the model does for a call.
Agrees = Callable[[Way, CallInputs], bool]


@dataclass(frozen=True)
class _Exit:
    """Sizes at which a program is not the one that runs: where the condition does not hold, as at the point.

    So are those `beside` the example, if there are such.
    """

    condition: sympy.Basic
    point: Sizes
    line: str
    beside: Sizes | None = None


def tree_of(first: Way, trace: Trace, agrees: Agrees, with_none: Container[Place] = ()) -> Tree:
    """The ways through a model, of which one is traced.

    A name does not ask for a size of 0, and a way that is traced for one entry would be taken for none as well:
    `with_none` are the axes along which there is to be a way for none.

    Raises:
        OneWayError: there are too many, or what they depend on is not known.
        ExportError: torch.export stops on one of them.
    """
    _require_names(first)
    return _Search(first, trace, agrees, with_none).tree(first, Region())


def places_with_none(first: Way, takes: Callable[[CallInputs], bool]) -> list[Place]:
    """The axes along which a model takes inputs without entries; `takes` tells whether it runs with inputs.

    Raises:
        OneWayError: what changes has no name.
    """
    _require_names(first)
    resized, hints = InputsOfOtherSizes(first.inputs, first.example.call), _hints(first)
    calls = ((place, resized.alike({**hints, str(symbol): 0})) for symbol, place in _places(first).items())
    return [place for place, call in calls if call is not None and takes(call)]


def _places(way: Way) -> dict[sympy.Symbol, Place]:
    """The axis that each symbol of a trace is the size of."""
    places = {symbol_of(place): place for place in way.example.sizes}
    found = places_of_symbols(way.inputs, way.example).items()
    return {symbol: places[place] for symbol, place in found if place in places}


def _hints(way: Way) -> dict[str, int]:
    """The sizes of the example, by the names of the symbols."""
    return {str(symbol): way.example.sizes[place] for symbol, place in _places(way).items()}


def _require_names(first: Way) -> None:
    """Refuses what may change and is no size of the example: numbers, and axes that may be constants as well."""
    for number, shape in enumerate(first.example.shapes):
        for axis, asked in shape.axes.items():
            is_known = Place(number, axis) in first.example.sizes or isinstance(asked, int) or asked is None
            sizes = first.inputs.sizes[number]
            if not is_known and sizes and not first.inputs.shape_env.replace(sizes[axis]).is_Integer:
                raise OneWayError(f"{shape.leaf.name} changes, and not along an axis with a name or a Dim of its own")


def ways_of(tree: Tree) -> Iterator[Way]:
    """The leaves, from left to right."""
    if isinstance(tree, Way):
        yield tree
    else:
        yield from ways_of(tree.then)
        yield from ways_of(tree.orelse)


def limits_of_ways(tree: Tree, region: Region = EVERYWHERE) -> Iterator[Limit]:
    """Where the program of each way is not the model, of the sizes that lead to it; not what made a way of its own."""
    if isinstance(tree, Way):
        own = [bound for bound in tree.bounds if not is_of_sizes(bound)]
        yield from limits_of(tree.inputs, own, region)
    else:
        yield from limits_of_ways(tree.then, region.within(tree.condition))
        yield from limits_of_ways(tree.orelse, region.within(sympy.Not(tree.condition)))


def is_of_sizes(bound: AxisBound) -> bool:
    """Whether another way may be traced for the sizes that a bound excludes."""
    return bool(bound.point) and bound.kind in (Kind.WRONG, Kind.HIDDEN, Kind.NONE)


class _Search:
    def __init__(self, first: Way, trace: Trace, agrees: Agrees, with_none: Container[Place]) -> None:
        self._first, self._trace, self._agrees = first, trace, agrees
        self._axes = Axes.of(first.example, with_none)
        self._inputs = InputsOfOtherSizes(first.inputs, first.example.call)
        self._count = 1
        self._numbers: Counter[str] = Counter()  # how often a line was found to hold for one number

    def tree(self, way: Way, region: Region) -> Tree:
        """The tree for the sizes of a region, one of which a program was traced for."""
        exits = list(self._exits(way, region))
        self._require_tests(exits)
        found: Tree = way
        inner = [region]
        for leaving in exits:
            inner.append(inner[-1].within(leaving.condition))
        for leaving, around in zip(reversed(exits), reversed(inner[:-1]), strict=True):
            beyond = around.within(sympy.Not(leaving.condition))
            found = Branch(leaving.condition, found, self.tree(self._beyond(leaving, beyond), beyond), leaving.line)
        return found

    def _beyond(self, leaving: _Exit, region: Region) -> Way:
        """The way for the sizes at which a program is not the one that runs.

        It is traced beside the example if that is the model at the point as well, where the other program was found
        wrong. The least sizes that break a condition often make axes within the model 1, of which torch makes
        constants: the way that is traced there is for few sizes, and there are others for all the rest.
        """
        self._count += 1
        if self._count > _WAYS:
            raise OneWayError(f"tests on sizes lead to more than {_WAYS} ways through the model")
        beside = self._way_beside(leaving, region)
        return self._at(leaving.point, region) if beside is None else beside

    def _way_beside(self, leaving: _Exit, region: Region) -> Way | None:
        if leaving.beside is None:
            return None
        try:
            way = self._at(leaving.beside, region)
        except ExportError as error:  # the model may refuse these sizes
            logger.info("beside the example torch.export stops: %s", error)
            return None
        return way if self._agrees(way, self._call(leaving.point)) else None

    def _require_tests(self, exits: Sequence[_Exit]) -> None:
        """Refuses a line that makes a number of a size, for each of which there is a way of its own."""
        for leaving in exits:
            self._numbers[leaving.line] += isinstance(leaving.condition, sympy.Eq) and bool(leaving.line)
            if self._numbers[leaving.line] > _NUMBERS:
                raise OneWayError(f"a number is made of a size by {leaving.line}")

    def _at(self, point: Sizes, region: Region) -> Way:
        return self._trace(without_small_axes(self._first.example.like(self._call(point))), region)

    def _call(self, point: Sizes) -> CallInputs:
        names = {str(symbol): point[place] for symbol, place in self._symbols(self._first).items() if place in point}
        call = self._inputs.alike({**_hints(self._first), **names})
        if call is None:
            raise OneWayError("inputs of other sizes would be too large")
        return call

    def _symbols(self, way: Way) -> Mapping[sympy.Symbol, sympy.Symbol]:
        return places_of_symbols(way.inputs, self._first.example)

    def _exits(self, way: Way, region: Region) -> Iterator[_Exit]:
        """What is not known to hold for all sizes of a region and has to, in an order: each point meets those before.

        That an axis has one size in a program, or that of another one, is such a condition as well.
        """
        for leaving in self._candidates(way, region):
            if self._is_implied(region, leaving.condition):
                continue
            point: Sizes | None = self._all_sizes(leaving.point)
            if point is None or not _meets(region, point) or not _breaks(leaving.condition, point):
                point = self._breaking(way, region, leaving.condition)
            if point is None:
                raise OneWayError("on one of the ways an axis is a constant, and may be something else")
            beside = self._beside_the_example(way, region, leaving.condition)
            yield replace(leaving, point=self._all_sizes(point), beside=beside)
            region = region.within(leaving.condition)

    def _beside_the_example(self, way: Way, region: Region, condition: sympy.Basic) -> Sizes | None:
        """Sizes a little larger than those of a way at which a condition does not hold, if there are such."""
        sizes = {symbol_of(place): size for place, size in way.example.sizes.items()}
        own = condition.free_symbols & {*self._axes.domain} - {*self._axes.same}
        for by in range(1, _BESIDE):
            larger = {symbol: sizes[symbol] + by for symbol in own if symbol in sizes}
            point = self._all_sizes({s: size for s, size in {**sizes, **larger}.items() if s not in self._axes.same})
            asked = all(self._axes.domain[symbol].holds(size) for symbol, size in larger.items())
            if larger and asked and _meets(region, point) and _breaks(condition, point):
                return point
        return None

    def _candidates(self, way: Way, region: Region) -> Iterator[_Exit]:
        for bound in way.bounds:
            if is_of_sizes(bound):
                yield self._exit(way, bound)
            elif bound.excludes_what_was_asked:
                raise OneWayError(f"the program is {bound}")
        for place, size in self._constants(way).items():
            yield _Exit(sympy.Eq(place, size), {}, "")
        yield from self._of_one_size(way, region)

    def _of_one_size(self, way: Way, region: Region) -> Iterator[_Exit]:
        """Axes whose size is made of others in a program, and not because the model refuses all else."""
        places, env = self._symbols(way), way.inputs.shape_env
        exits = (self._condition(way, bound) for bound in way.bounds if is_of_sizes(bound))
        bounds = [condition for condition in exits if isinstance(condition, sympy.Eq)]
        for symbol, place in places.items():
            size = env.replace(symbol)
            if size == symbol or size.is_Integer or not size.free_symbols <= places.keys():
                continue
            known = {place: size.xreplace(dict(places))}
            condition = sympy.Eq(place, known[place])
            is_bound = any(entry.xreplace(known) == sympy.true for entry in bounds)
            if not is_bound and not self._taken(way, region).implies(condition, self._axes):
                yield _Exit(condition, {}, "")

    def _breaking(self, way: Way, region: Region, condition: sympy.Basic) -> Sizes | None:
        """Sizes of a region at which a condition does not hold: such as the model is not known to refuse, if it can be.

        Its own conditions may be those of one way alone.
        """
        within = (self._taken(way, region), region)
        return next((sizes for each in within if (sizes := each.breaking(condition, self._axes)) is not None), None)

    def _taken(self, way: Way, region: Region) -> Region:
        """The sizes of a region without those that the model is known to refuse on one of the ways."""
        places = self._symbols(way)
        own = (bound.holds for bound in way.bounds if bound.kind == Kind.OWN and bound.holds is not None)
        for condition in own:
            if condition.free_symbols <= places.keys():
                region = region.within(condition.xreplace(dict(places)))
        return region

    def _is_implied(self, region: Region, condition: sympy.Basic) -> bool:
        if region.implies(condition, self._axes):
            return True
        is_one = isinstance(condition, sympy.Eq) and condition.args[0].is_Symbol and condition.args[1].is_Integer
        return is_one and region.is_one_size(condition.args[0], int(condition.args[1]), self._axes)

    def _constants(self, way: Way) -> dict[sympy.Symbol, int]:
        sizes = {symbol_of(place): way.inputs.sizes[place.leaf][place.axis] for place in self._first.example.sizes}
        found = {place: way.inputs.shape_env.replace(size) for place, size in sizes.items()}
        return {place: int(size) for place, size in found.items() if size.is_Integer}

    def _exit(self, way: Way, bound: AxisBound) -> _Exit:
        places = self._symbols(way)
        known = {place: bound.point[str(symbol)] for symbol, place in places.items() if str(symbol) in bound.point}
        return _Exit(self._condition(way, bound), {**self._constants(way), **known}, bound.line)

    def _condition(self, way: Way, bound: AxisBound) -> sympy.Basic:
        places = self._symbols(way)
        if bound.kind == Kind.NONE:
            return sympy.And(*(sympy.Ge(place, 1) for symbol, place in places.items() if str(symbol) in bound.symbols))
        if bound.holds is None or not bound.holds.free_symbols <= places.keys():
            raise OneWayError(f"the program is {bound}")
        return bound.holds.xreplace(dict(places))

    def _all_sizes(self, point: Sizes) -> Sizes:
        """A point with the sizes that follow from it by their names."""
        known = dict(point)
        for symbol in self._axes.same:
            value = self._axes.reduced(symbol).xreplace({key: sympy.Integer(size) for key, size in known.items()})
            if value.is_Integer:
                known[symbol] = int(value)
        return known


def _meets(region: Region, point: Sizes) -> bool:
    return not any(_breaks(condition, point) for condition in region.conditions)


def _breaks(condition: sympy.Basic, point: Sizes) -> bool:
    sizes = {symbol: sympy.Integer(size) for symbol, size in point.items()}
    asked = condition.replace(Mod, PythonMod)  # torch's Mod takes nothing below 0, as `(n - 1) % 2` of no rows
    try:
        return bool(asked.xreplace(sizes) == sympy.false)
    except ArithmeticError:
        raise OneWayError(f"a test has no value at one of the sizes ({condition})") from None


__all__ = ["Branch", "OneWayError", "Place", "Tree", "Way", "is_of_sizes", "tree_of", "ways_of"]
