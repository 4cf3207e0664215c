"""Axes that are squeezed away where they are of size 1, and kept where they are longer.

Torch traces with sizes from 2 up, and asks no question of a size that can then be no 1. A file has one rank for each
value: what `x.squeeze(1)` takes for granted of its axis is therefore a condition like those that the model asks for.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from exportguard.signature import raw_size

from .program_nodes import calls_of, line_of
from .recording import Decision

SQUEEZES = tuple(getattr(torch.ops.aten.squeeze, name) for name in ("default", "dim", "dims"))


def squeezed_axes(node: Node) -> list[int]:
    """The axes that the trace knows to be of size 1, as the conversion leaves out those and no others."""
    sizes = _sizes(node)
    return [axis for axis in _asked(node) if sizes and isinstance(sizes[axis], int) and sizes[axis] == 1]


def decisions_of_squeezes(program: ExportedProgram) -> list[Decision]:
    """What the squeezes of a program take for granted: that an axis of no known size has not one entry."""
    found: dict[sympy.Basic, Decision] = {}
    for node in calls_of(program, SQUEEZES):
        sizes = _sizes(node)
        for axis in _asked(node) if sizes else ():
            size = sizes[axis] if isinstance(sizes[axis], int) else raw_size(sizes[axis])
            condition = sympy.Ne(size, 1)
            if condition.free_symbols and condition not in found:
                found[condition] = Decision(condition, line_of(node), is_of_model=True)
    return [*found.values()]


def _sizes(node: Node) -> Any:
    value = node.args[0]
    assert isinstance(value, Node)
    return value.meta["val"].shape


def _asked(node: Node) -> list[int]:
    asked = node.args[1:]
    return pytree.tree_leaves(asked) if asked else list(range(len(_sizes(node))))
