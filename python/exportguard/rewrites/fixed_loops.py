"""Loops over a dynamic axis that torch.export unrolls: it makes the axis a constant, which is no error."""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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
    text = linecache.getline(place.ran.co_filename, place.line).strip()
    try:
        node = ast.parse(f"{text}\n pass" if text.endswith(":") else text)
    except SyntaxError:
        return False
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    counts = any(isinstance(f, ast.Name) and f.id in ("range", "len", "enumerate", "zip") for f in calls)
    return counts or any(isinstance(n, ast.For | ast.While) for n in ast.walk(node))


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
