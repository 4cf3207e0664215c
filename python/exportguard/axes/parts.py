"""Tensors that are cut into parts, of which a short axis has fewer.

`x.chunk(2)` gives one part of an axis of size 1. A program has the parts of the traced size, and torch, which traces
with sizes from 2 up, asks no question where all of those give as many: what a cut takes for granted is therefore a
condition like those that the model asks for. A file has the parts of the trace, the last ones empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._sympy.functions import FloorDiv

from exportguard.signature import raw_size

from .program_nodes import calls_of, line_of
from .recording import Decision

_aten = torch.ops.aten


def _quotient_up(size: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
    return FloorDiv(size + part - 1, part)


def _count_of_chunks(size: sympy.Expr, chunks: sympy.Expr) -> sympy.Expr:
    return _quotient_up(size, _quotient_up(size, chunks))


#: How many parts there are of a size, by the operator's second argument.
_COUNTS: Mapping[Any, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    _aten.chunk.default: _count_of_chunks,
    _aten.unsafe_chunk.default: _count_of_chunks,
    _aten.split.Tensor: _quotient_up,
    _aten.unsafe_split.Tensor: _quotient_up,
}


CUTS = (*_COUNTS,)


def parts_as_traced(operator: Any, count: int, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """What a cut gives, and empty parts up to those of the trace."""
    parts = list(operator(*args, **kwargs))
    axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    return parts + [parts[-1].narrow(axis, 0, 0)] * (count - len(parts))


def decisions_of_parts(program: ExportedProgram) -> list[Decision]:
    """What the cuts of a program take for granted: that there are as many parts as of the traced sizes."""
    found: dict[sympy.Basic, Decision] = {}
    for node in calls_of(program, CUTS):
        condition = _condition(node)
        if condition is not None and condition.free_symbols and condition not in found:
            found[condition] = Decision(condition, line_of(node), is_of_model=True)
    return [*found.values()]


def _condition(node: Node) -> sympy.Basic | None:
    """Nothing for a cut whose arguments are computed."""
    x, given, *rest = node.args
    axis = rest[0] if rest else node.kwargs.get("dim", 0)
    assert isinstance(node.target, torch._ops.OpOverload)
    if not isinstance(x, Node) or not isinstance(given, int) or not isinstance(axis, int):
        return None
    size = x.meta["val"].shape[axis]
    if isinstance(size, int):
        return None
    return sympy.Eq(_COUNTS[node.target](raw_size(size), sympy.Integer(given)), len(node.meta["val"]))
