"""More inputs of a model whose inputs go together, as the patches of a picture and the grid that counts them.

Such inputs cannot be made of other sizes from one example. Those that are given tell which sizes come at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch

from exportguard.inputs import CallInputs
from exportguard.signature import TracedInputs, raw_size

from .evaluation import Evaluation
from .expressions import Sizes

_FEWEST = 3  # different sizes that a condition must have been met by


def sizes_of_examples(traced: TracedInputs, calls: Sequence[CallInputs]) -> Iterator[tuple[CallInputs, Sizes]]:
    """Each call that has the inputs that were traced, with what its sizes are by the symbols of the trace."""
    for call in calls:
        leaves = call.leaves()
        sizes = _sizes(traced.leaves, leaves) if len(leaves) == len(traced.leaves) else None
        if sizes is not None:
            yield call, sizes


def _sizes(traced: Sequence[Any], leaves: Sequence[Any]) -> Sizes | None:
    """None where an axis is not what the trace says, or one symbol would have two sizes."""
    found: dict[sympy.Symbol, int] = {}
    for value, leaf in zip(traced, leaves, strict=True):
        for expression, size in _pairs(value, leaf):
            if expression.is_Symbol and found.setdefault(expression, size) != size:
                return None
            if expression.is_Integer and int(expression) != size:
                return None
    return found


def _pairs(value: object, leaf: object) -> Iterator[tuple[sympy.Expr, int]]:
    if isinstance(value, torch.Tensor) and isinstance(leaf, torch.Tensor):
        yield from ((raw_size(size), int(actual)) for size, actual in zip(value.shape, leaf.shape, strict=False))
    elif isinstance(value, torch.SymInt) and isinstance(leaf, int):
        yield raw_size(value), leaf


def is_met(condition: sympy.Basic, examples: Sequence[Sizes]) -> list[bool | None]:
    """Whether each example meets a condition on sizes; None where that is not defined."""
    symbols = sorted(condition.free_symbols, key=str)
    evaluation = Evaluation(condition, symbols)
    return [evaluation({symbol: sizes[symbol] for symbol in symbols}) for sizes in examples]


def are_telling(condition: sympy.Basic, examples: Sequence[Sizes]) -> bool:
    """Whether the examples have several different sizes of what a condition is about."""
    symbols = sorted(condition.free_symbols, key=str)
    return len({tuple(sizes[symbol] for symbol in symbols) for sizes in examples}) >= _FEWEST
