"""Slices whose ends are not decided while a model is traced: `x[:, :16]` has min(16, n) columns.

Torch compares the end of a slice with the size and notes the answer as a guard, which is the simpler program where the
model takes no other sizes. Where it does, the size is left open instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from typing import Any

import sympy
import torch

from exportguard.declaration import Patch

_max: Any = torch.sym_max
_min: Any = torch.sym_min

#: The function of torch that asks, whose name stands in the frames of its questions.
ASKING = "_compute_slice_index"


def with_open_ends(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The place in 0 … size that an index of a slice means, as Python counts, without a guard."""
    # Not at the top: it takes long to import, and whoever exports has it by now.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    def is_known(least: Any, size: Any) -> bool:
        # Of sizes that are 1 torch takes for granted that they are 2.
        return statically_known_true(least <= size) and statically_known_true(least <= _with_ones(size))

    @functools.wraps(original)
    def compute_slice_index(size: Any, index: Any) -> Any:
        if isinstance(size, int) and isinstance(index, int):
            return original(size, index)
        if statically_known_true(index >= 0):
            return index if is_known(index, size) else _min(index, size)
        if statically_known_true(index < 0):
            return index + size if is_known(-index, size) else _max(index + size, 0)
        return original(size, index)

    return compute_slice_index


def _with_ones(size: Any) -> Any:
    """A size where each size of an input is one less than it is: for torch they are 2 and more, in fact 1 and more.

    What an operator asked before, as whether there are three rows, says nothing of the sizes either: the program may be
    right for fewer, and the guard is then dropped.
    """
    if not isinstance(size, torch.SymInt):
        return size
    from torch.fx.experimental.sym_node import SymNode

    expression, shape_env = size.node.expr, size.node.shape_env
    guarded = {symbol for guard in shape_env.guards for symbol in guard.expr.free_symbols}
    less = {symbol: symbol - _beyond_one(shape_env, symbol, guarded) for symbol in expression.free_symbols}
    return torch.SymInt(SymNode(expression.xreplace(less), shape_env, int, None))  # type: ignore[no-untyped-call]


def _beyond_one(shape_env: Any, symbol: Any, guarded: Container[Any]) -> int:
    """How much more than 1 torch takes a size for that was not asked to be larger."""
    low = shape_env.var_to_range[symbol].lower if symbol in guarded else sympy.Integer(2)
    return max(1, int(low) - 1) if low.is_Integer else 1


def open_slices() -> Patch:
    """The patch; torch has had a function of its own for the question since 2.9."""
    return Patch(
        name="slices with open ends",
        kind="custom",
        target=f"torch._subclasses.fake_impls.{ASKING}",
        reason="a slice that ends at a number is decided for the traced size, and the program has no others",
        replace=with_open_ends,
    )
