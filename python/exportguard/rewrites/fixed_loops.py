"""Loops over a dynamic axis that torch.export unrolls: it makes the axis a constant, which is no error."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from exportguard import _core
from exportguard.rewrites.places import Place, places_among

_SEARCH = "exportguard.rewrites.automatic"  # what called the export


@dataclass
class FixedAxes:
    """The axes that became constants while a program was traced, each with the line that did it."""

    places: dict[str, Place | None] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.places)

    def loops(self) -> list[Place]:
        """The lines that are the head of a `for`, or ask for a length."""
        return [place for place in self.places.values() if place is not None and _iterates(place)]


def _iterates(place: Place) -> bool:
    """Whether a line is the head of a loop, holds a comprehension or asks for a length."""
    lines = linecache.getlines(place.ran.co_filename)
    return any(first <= place.line <= last for first, last in _loops_of("".join(lines)))


@functools.lru_cache(maxsize=8)
def _loops_of(source: str) -> tuple[tuple[int, int], ...]:
    """The lines of what goes through something in a file."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return ()
    heads = [(n.lineno, n.iter.end_lineno or n.lineno) for n in nodes if isinstance(n, ast.For)]
    heads += [(n.lineno, n.test.end_lineno or n.lineno) for n in nodes if isinstance(n, ast.While)]
    kinds = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
    heads += [(n.lineno, n.end_lineno or n.lineno) for n in nodes if isinstance(n, kinds)]
    return (*heads, *((n.lineno, n.end_lineno or n.lineno) for n in nodes if _counts(n)))


def _counts(node: ast.AST) -> TypeGuard[ast.Call]:
    names = ("range", "len", "enumerate", "zip", "reversed", "sum", "any", "all", "min", "max", "list", "float")
    methods = ("tolist", "unbind")
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    is_method = isinstance(function, ast.Attribute) and (function.attr in methods or _is_of_math(function))
    return is_method or (isinstance(function, ast.Name) and function.id in names)


def _is_of_math(function: ast.Attribute) -> bool:
    return isinstance(function.value, ast.Name) and function.value.id == "math"


@contextmanager
def fixed_axes() -> Iterator[FixedAxes]:
    """Records, while it is open, which dynamic axes torch makes constants."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found = FixedAxes()
    original = ShapeEnv._set_replacement

    def set_replacement(self: Any, a: Any, tgt: Any, msg: str) -> None:
        axis = _axis_of(self, a) if tgt.is_number else None
        if axis is not None:
            found.places.setdefault(axis, _place_now())
        original(self, a, tgt, msg)

    changes = _core.KeptChanges()
    changes.set_attribute(ShapeEnv, "_set_replacement", set_replacement)
    try:
        yield found
    finally:
        changes.undo()


def _axis_of(shape_env: Any, symbol: Any) -> str | None:
    sources = shape_env.var_to_sources.get(symbol) or []
    names = [source.name if isinstance(source.name, str) else source.name() for source in sources]
    return names[0] if names else None


def _place_now() -> Place | None:
    frame: types.FrameType | None = sys._getframe(2)
    running = []
    while frame is not None and frame.f_globals.get("__name__") != _SEARCH:
        running.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    places = places_among(running[::-1])
    return places[0] if places else None
