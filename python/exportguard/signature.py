"""The sizes that were traced for the inputs of an exported program, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from .dynamic_shapes import LeafShape, graph_name


@dataclass(frozen=True)
class TracedInputs:
    """What a program traced for each leaf of its inputs: a fake tensor, a symbolic number, or a constant.

    `sizes` has for each leaf the expressions of its axes, those of a number being itself, `ranges` the bounds of their
    symbols. `taken` says which leaves the program takes; None and constants it does not. `shape_env` is torch's record
    of the sizes; None if no leaf is a tensor that tells.
    """

    leaves: Sequence[Any]
    sizes: Sequence[Sequence[sympy.Expr]]
    shape_env: Any
    ranges: Mapping[Any, Any]
    taken: Sequence[bool]


def raw_size(size: object) -> sympy.Expr:
    """The size as torch first called it, before it was found equal to something else."""
    # torch 2.11 to 2.13: `expr` of a node is its `_expr` with what was found out since.
    if isinstance(size, torch.SymInt | torch.SymFloat):
        return size.node._expr
    return sympy.sympify(size)


def symbol_names(traced: TracedInputs, shapes: Sequence[LeafShape]) -> dict[str, str]:
    """The user's name for each symbol that stands alone for an axis of the leaves; the first name wins.

    A graph only knows names of ASCII letters, digits and `_`: `past+seq` becomes `past_seq`.
    """
    names: dict[str, str] = {}
    known: dict[str, str] = {}  # by label
    leaves = list(zip(shapes, traced.leaves, strict=True))
    # Tensors first: a number of the same name is another quantity (the tokens a window has seen, not those it holds).
    for shape, value in sorted(leaves, key=lambda leaf: not isinstance(leaf[1], torch.Tensor)):
        for axis in shape.axes:
            is_tensor = isinstance(value, torch.Tensor)
            label, symbol = _named_symbol(shape, axis, value.shape[axis] if is_tensor else value)
            if label is None or symbol in names or (label in known and not is_tensor):
                continue
            names[symbol] = known.setdefault(label, graph_name(label, names.values()))
    return names


def _named_symbol(shape: LeafShape, axis: int, size: object) -> tuple[str | None, str]:
    """What the user calls a symbol, and torch's name of it; the root of a derived `Dim` is what has a name."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(0)
    root = getattr(shape.axes[axis], "root", None)
    if root is not None and len(expression.free_symbols) == 1:
        return str(root.__name__), str(*expression.free_symbols)
    return (shape.label(axis) if expression.is_symbol else None), str(expression)
