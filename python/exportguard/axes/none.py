"""Sizes of 0, which no name asks for: what a model asks of them, and caches before their first token."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import sympy
import torch

from .bound import AxisBound, Kind
from .expressions import Sizes
from .trace import Trace, axes_asked, first_decided_differently, meets
from .trial import Outcome

logger = logging.getLogger(__name__)


def bounds_at_none(trace: Trace) -> list[AxisBound]:
    """What the model itself asks of a size that may be 0, or its loops go by, where the program does something else,
    and what it tests of one that it refuses."""
    asked = {question.size: question.line for question in trace.of_none}
    tested = {question.size: question.line for question in trace.of_none if question.is_test}
    of_tokens = {*_token_axes(trace)}
    sizes = (one for one in trace.free_symbols() if str(one) in asked and one not in of_tokens and trace.may_be(one, 0))
    bounds = (_bound_of_none(trace, symbol, asked, tested) for symbol in sizes)
    return [bound for bound in bounds if bound is not None]


def _bound_of_none(
    trace: Trace, symbol: sympy.Symbol, asked: Mapping[str, str], tested: Mapping[str, str]
) -> AxisBound | None:
    """Nothing if the program does what the model does. Where that refuses it there is no way to be gone."""
    differs, size = trace.differs({symbol: 0}), str(symbol)
    if not differs and not (size in tested and trace.refuses_beside_any({symbol: 0})):
        return None
    return AxisBound(
        condition=f"{trace.worded(symbol)} >= 1",
        symbols=frozenset([size]),
        kind=Kind.NONE,
        line=asked[size] if differs else tested[size],
        sizes=trace.told({symbol: 0}),
        holds=_not_none(symbol),
        point=trace.by_name({symbol: 0}) if differs else {},
    )


def bounds_of_empty_caches(trace: Trace) -> list[AxisBound]:
    """The caches that program and model treat differently before their first token."""
    free = trace.free_symbols()
    symbols = dict.fromkeys(symbol for symbol in _token_axes(trace) if symbol in free)
    points = [sizes for symbol in symbols if meets(trace.known, trace, sizes := {symbol: 0})]
    return [bound for sizes in points if (bound := _bound_of_empty(trace, sizes)) is not None]


def _token_axes(trace: Trace) -> Iterator[sympy.Symbol]:
    """What was asked for of the axes that count the tokens of keys and values."""
    for shape, axis, symbol in axes_asked(trace.traced, trace.example.shapes):
        value = shape.leaf.value
        is_cached = isinstance(value, torch.Tensor) and shape.leaf.name.endswith((".key", ".value"))
        if is_cached and axis == value.dim() - 2:
            yield symbol


def _bound_of_empty(trace: Trace, sizes: Sizes) -> AxisBound | None:
    """Torch's symbols are positive: `past > 0` is no question that it notes, so they are compared in any case."""
    if not trace.trial.is_affordable(trace.all_sizes(sizes)):
        return None
    changed = first_decided_differently(trace, sizes)
    outcomes = set(trace.trial.outcomes_by_masks(trace.all_sizes(sizes)))
    logger.debug("at %s: %s", trace.told(sizes), outcomes)
    if Outcome.DIFFERS not in outcomes or not trace.runs_as_traced():
        return None
    bound = AxisBound(
        condition=" and ".join(f"{trace.worded(symbol)} >= 1" for symbol in sizes),
        symbols=frozenset(map(str, sizes)),
        kind=Kind.EMPTY,
        line=changed.line if changed else "",
        sizes=trace.told(sizes),
        holds=sympy.And(*map(_not_none, sizes)),
    )
    logger.warning("%s; export the first step, without a cache, on its own", bound)
    return bound


def _not_none(symbol: sympy.Symbol) -> sympy.Basic:
    """That a size is not 0, which sympy takes for granted of torch's symbols: they are positive."""
    return sympy.Ge(symbol, 1, evaluate=False)
