"""Slices whose ends are not decided while a model is traced: `x[:, :16]` has min(16, n) columns.

Torch compares the end of a slice with the size and notes the answer as a guard, which is the simpler program where the
model takes no other sizes. Where it does, the size is left open instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

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
    """A size where each size of an input is one less than it is: for torch they are 2 and more, in fact 1 and more."""
    if not isinstance(size, torch.SymInt):
        return size
    from torch.fx.experimental.sym_node import SymNode

    expression = size.node.expr
    one_less = expression.xreplace({symbol: symbol - 1 for symbol in expression.free_symbols})
    return torch.SymInt(SymNode(one_less, size.node.shape_env, int, None))  # type: ignore[no-untyped-call]


def open_slices() -> Patch:
    """The patch; torch has had a function of its own for the question since 2.9."""
    return Patch(
        name="slices with open ends",
        kind="custom",
        target=f"torch._subclasses.fake_impls.{ASKING}",
        reason="a slice that ends at a number is decided for the traced size, and the program has no others",
        replace=with_open_ends,
    )
