"""What a model asks of sizes, known from one proof to the next of the same export.

What it asks until it returns, or raises, says which other sizes go the same way: it is not run for them again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import sympy
import torch

from exportguard.inputs import CallInputs

from .evaluation import Evaluation
from .symbolic_sizes import Asked


@dataclass(frozen=True)
class _Way:
    """What was asked, in symbols that stand for the axes in their order."""

    symbols: Sequence[sympy.Symbol]
    asked: Asked
    conditions: Sequence[Evaluation]


@dataclass(frozen=True)
class _Axes:
    """Which axes of a call have a symbol, and everything else that tells it from calls of other sizes."""

    symbols: Sequence[sympy.Symbol]
    sizes: Sequence[int]
    others: Hashable


@dataclass
class KnownWays:
    """The ways of one model."""

    _ways: dict[Hashable, list[_Way]] = field(default_factory=dict)
    #: How often the kernels of a trace told no more than others.
    asked_in_vain: int = 0

    def at(self, call: CallInputs, sizes: Sequence[Sequence[sympy.Expr]]) -> Asked | None:
        """What is asked of a call whose axes have these expressions; None where that is not known."""
        axes = _axes_of(call, sizes)
        ways = [] if axes is None else self._ways.get(axes.others, [])
        for way in ways:
            if axes is not None and all(condition.at(axes.sizes) is True for condition in way.conditions):
                return _renamed(way.asked, dict(zip(way.symbols, axes.symbols, strict=True)))
        return None

    def add(self, call: CallInputs, sizes: Sequence[Sequence[sympy.Expr]], asked: Asked) -> None:
        """Takes in what was asked, if it tells all that other sizes have in common with these."""
        axes = _axes_of(call, sizes)
        if axes is None or asked.is_cut_short or not asked.conditions:
            return
        if not all(condition.free_symbols <= {*axes.symbols} for condition in asked.conditions):
            return
        conditions = [Evaluation(condition, axes.symbols) for condition in asked.conditions]
        self._ways.setdefault(axes.others, []).append(_Way(axes.symbols, asked, conditions))


#: The ways of models, each kept by its number as long as it is known, within `sharing_ways`.
_SHARED: ContextVar[dict[int, tuple[torch.nn.Module, KnownWays]] | None] = ContextVar("exportguard.ways", default=None)


@contextmanager
def sharing_ways() -> Iterator[None]:
    """While the block runs no model changes: what one proof finds of its ways is known to the next."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def ways_of(model: torch.nn.Module) -> KnownWays:
    """What is known of a model, to be added to."""
    shared = _SHARED.get()
    if shared is None:
        return KnownWays()
    return shared.setdefault(id(model), (model, KnownWays()))[1]


def _axes_of(call: CallInputs, sizes: Sequence[Sequence[sympy.Expr]]) -> _Axes | None:
    """None where an axis follows others, or an input is no tensor and can be told by nothing."""
    values: dict[sympy.Symbol, int] = {}
    others: list[Hashable] = []
    for leaf, expressions in zip(call.leaves(), sizes, strict=True):
        if not isinstance(leaf, torch.Tensor):
            if not isinstance(leaf, bool | int | float | str | type(None)):
                return None
            others.append((type(leaf), leaf))
            continue
        others.append((leaf.dtype, leaf.requires_grad))
        for size, expression in zip(leaf.shape, expressions, strict=True):
            if isinstance(expression, sympy.Symbol):
                values.setdefault(expression, size)
                others.append([*values].index(expression))
            elif expression.is_Integer:
                others.append(("fixed", size))
            else:
                return None
    return _Axes(tuple(values), tuple(values.values()), tuple(others))


def _renamed(asked: Asked, names: Mapping[sympy.Symbol, sympy.Symbol]) -> Asked:
    def renamed(conditions: Sequence[sympy.Basic]) -> list[sympy.Basic]:
        return [condition.xreplace(names) for condition in conditions]

    return asked._replace(conditions=renamed(asked.conditions), of_code=renamed(asked.of_code))


__all__ = ["KnownWays", "sharing_ways", "ways_of"]
