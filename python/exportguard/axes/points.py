"""Sizes at which a model is tried beside its program, and what is the same at several of them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence

import sympy
import torch

from .expressions import Range, Sizes
from .implication import decide
from .resizing import other_sizes
from .trace import Trace, domain_from_one, meets, within_known

logger = logging.getLogger(__name__)

_MODERATE = 40  # a size that is soon computed
_LARGER = 18  # a size that few tests take for small, and that is soon computed

#: Which questions are answered otherwise than in the trace, and which sizes are 1.
Cell = tuple[frozenset[sympy.Basic], frozenset[sympy.Symbol]]


def cell_of(trace: Trace, sizes: Sizes) -> Cell:
    """The sizes among which one trial tells of all as much as it tells of its own.

    The model comes to the same questions as at another size of the cell, gives the same answers, and so goes the same
    way to the first that was not asked in the trace. All that is looked for there, behind the points that guards are
    tried at, is a question of a single entry, and of those it has the same.
    """
    known = trace.all_sizes(sizes)
    others = frozenset(
        decision.condition
        for decision in trace.decisions
        if decision.condition.free_symbols <= known.keys() and trace.value(decision.condition, known) is False
    )
    return others, frozenset(symbol for symbol in trace.free_symbols() if known[symbol] == 1)


def spread(points: Sequence[Sizes]) -> list[Sizes]:
    """The points with one of larger sizes behind the smallest, where programs may do the same by luck."""
    moderate = [sizes for sizes in points[1:] if max(sizes.values()) <= _MODERATE]
    larger = max(moderate, key=lambda sizes: (min(sizes.values()), sum(sizes.values())), default=None)
    if larger is None:
        return [*points]
    return [points[0], larger, *(sizes for sizes in points[1:] if sizes is not larger)]


def input_symbols(trace: Trace, condition: sympy.Basic) -> frozenset[str]:
    """The symbols of a condition, as torch first called them and as it calls them in the end."""
    both = condition.free_symbols | trace.replaced(condition).free_symbols
    return frozenset(map(str, both))


def wrong_beside(trace: Trace, agreed: Sizes) -> Sizes | None:
    """Sizes at which the program is wrong, of which some are those at which it was found right."""
    for sizes in _sizes_beside(trace, agreed):
        if trace.differs(sizes):
            logger.debug("at %s it is wrong", trace.told(sizes))
            return sizes
    return None


def _sizes_beside(trace: Trace, agreed: Sizes) -> Iterator[Sizes]:
    """The same sizes of some axes with those of all others small, and with all of them larger.

    Where a test is answered in another way, the model may ask something of its other sizes that it did not ask in the
    trace, `a > 5 or b > 5`. Integers may be positions in what is there now, so long programs get no larger ones.
    """
    others = [symbol for symbol in trace.free_symbols() if symbol not in agreed]
    if not others:
        return
    has_one = 1 in agreed.values()
    least = {symbol: 1 if has_one and trace.may_be(symbol, 1) else trace.domain[symbol].low for symbol in others}
    yield {**least, **agreed}
    if [*agreed.values()].count(1) == 1 and trace.trial.may_try_many:
        # Where all are small, more is equal by luck than where two are.
        yield from ({symbol: 1, **agreed} for symbol, size in least.items() if size == 1)

    leaves = [leaf for leaf in trace.example.call.leaves() if isinstance(leaf, torch.Tensor)]
    if not trace.trial.may_try_many and not all(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
        return
    for by in range(_LARGER):
        larger = {symbol: max(_LARGER, trace.hints[symbol] + _LARGER // 2) + by for symbol in others}
        if trace.is_in_domain(larger) and meets(trace.known, trace, {**larger, **agreed}):
            yield {**larger, **agreed}
            return
    yield from points_within(trace, agreed)[-1:]


def takes_others(trace: Trace) -> bool:
    """Whether the model takes inputs that are made like those it refused, at sizes that meet every guard.

    A model that counts in its data what it has in an axis takes none; its refusal says nothing about the sizes.
    """
    conditions = [trace.replaced(guard.expr) for guard in trace.shape_env.guards]
    known = [
        condition for condition in conditions if condition.free_symbols and condition.free_symbols <= {*trace.hints}
    ]
    example = {symbol: trace.hints[symbol] for symbol in trace.free_symbols()}
    candidates = other_sizes(example, lambda sizes: trace.is_in_domain(sizes) and meets(known, trace, sizes))
    tried = [*itertools.islice(candidates, 2)]
    return not tried or not all(trace.trial.refuses(trace.all_sizes(sizes)) for sizes in tried)


def points_within(trace: Trace, given: Sizes) -> list[Sizes]:
    """Sizes within the bounds that are known, some of them given, the smaller ones first."""
    domain = {**domain_from_one(trace), **{symbol: Range(size, size) for symbol, size in given.items()}}
    found = decide(within_known(trace, sympy.false), domain).counterexamples
    points = [{**given, **point} for point in found]
    return [point for point in points if meets(trace.known, trace, point)]
