"""What became of each input axis: which ones were asked to change, and which ones torch.export kept so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sympy
import torch
from torch.export import Dim

from .axes.bound import AxisBound, Kind
from .cache_names import input_name
from .dynamic_shapes import Axis, LeafShape, ends_of, name_of
from .signature import TracedInputs, symbol_names
from .size_words import in_python

_SHOWN = 4  # further conditions on an axis
_TOLD_BESIDE = 3  # axes, of a cache of many layers for example

#: What the model does at sizes that cost no axis, where the file is not what it is.
_OTHER_THAN_THE_MODEL = {
    Kind.EMPTY: "with an empty cache the model does something else",
    Kind.NONE: "of none the model does something else",
    Kind.SINGLE: "of a single one the model does something else",
    Kind.SQUEEZED: "of a single one the model returns another rank",
}


@dataclass(frozen=True, kw_only=True)
class AxisOutcome:
    """One axis that was asked to change.

    `size` is the expression it is exported as, `at_most` the bound that the trace put on it (None: there is none). It
    is `kept` if the program is right at every size that the model takes. One that is not kept has the `guard` that
    fixed or bounded it and, as its `reason`, the line of the model where that was. `bounds` has all conditions that
    the program puts on it. `was` is its size in the example that was given, if that was too small to export with. Of
    one that became a constant `beside` are axes of the same size that nobody asked for, by input. For an `is_optional`
    one, asked with `Dim.AUTO`, a constant is an answer too.
    """

    input: str
    axis: int
    asked: str
    size: str
    kept: bool
    at_most: int | None = None
    reason: str = ""
    guard: str = ""
    is_number: bool = False
    is_optional: bool = False
    bounds: tuple[AxisBound, ...] = ()
    was: int | None = None
    beside: tuple[tuple[str, int], ...] = ()

    def as_dict(self) -> dict[str, object]:
        """For a JSON report."""
        return {**asdict(self), "bounds": [bound.as_dict() for bound in self.bounds]}

    def __str__(self) -> str:
        place = self.input if self.is_number else f"{self.input} axis {self.axis}"
        larger = f"; exported with a larger example, as torch makes a constant of {self.was}"
        return f"{place} ({self.asked}): {self._outcome()}{larger if self.was is not None else ''}"

    def _outcome(self) -> str:
        wrong = _wrong(self.bounds)
        if self.is_constant:
            guard = f", {self.guard}" if self.guard else ""
            return f"fixed to {self.size}{guard} ({self.reason}){self._told_beside()}"
        if wrong:
            further = [bound.condition for bound in wrong[1:]]
            return f"bounded, {self.size} {wrong[0]}{f'; and for {_listed(further)}' if further else ''}"
        bound = f", at most {self.at_most}" if self.at_most is not None else ""
        limits = [limit for limit in self.bounds if limit.kind == Kind.OWN and limit.at_most is None]
        own = [f"{limit.condition}{' or a single one' if any(limit.answers.values()) else ''}" for limit in limits]
        relations = f"; the model refuses other sizes than {_all_of(own)}" if own else ""
        return f"kept as {self.size}{bound}{relations}{self._told_of_others()}"

    def _told_of_others(self) -> str:
        """The sizes at which the file is not what the model is, though they cost no axis."""
        met = {kind: [limit.condition for limit in self.bounds if limit.kind == kind] for kind in _OTHER_THAN_THE_MODEL}
        told = {kind: " and ".join(dict.fromkeys(conditions)) for kind, conditions in met.items() if conditions}
        return "".join(f"; {_OTHER_THAN_THE_MODEL[kind]} ({conditions})" for kind, conditions in told.items())

    def _told_beside(self) -> str:
        """Axes that may be of that size by more than chance, as those of a mask that goes with a text."""
        if not self.beside:
            return ""
        places = [f"axis {axis} of {name}" for name, axis in self.beside[:_TOLD_BESIDE]]
        more = len(self.beside) - len(places)
        listed = ", ".join([*places, *([f"{more} more"] if more else [])])
        return (
            f"; of the same size, and constants as dynamic_shapes does not name them: {listed}; what goes with this "
            f"axis is to be named {self.asked} too"
        )

    @property
    def is_constant(self) -> bool:
        """Whether it has one size in the program."""
        return self.size.lstrip("-").isdigit()


def axis_outcomes(
    traced: TracedInputs,
    shapes: Sequence[LeafShape],
    lines: Mapping[str, str] | None = None,
    bounds: Sequence[AxisBound] | None = None,
    too_small: Mapping[tuple[str, int], int] | None = None,
) -> list[AxisOutcome]:
    """One entry for each axis that `shapes` asks for, in the order of the inputs.

    `lines` has the line of the model that made a symbol a constant, by torch's symbol. `bounds` has what else the
    program takes for granted, None if that was not looked at. `too_small` has the sizes of the given example that torch
    would have made constants.
    """
    given, names, shape_env = too_small or {}, symbol_names(traced, shapes), traced.shape_env

    def outcome(shape: LeafShape, axis: int, value: object) -> AxisOutcome:
        size, asked = _size(value, axis), _asked(shape.axes[axis])
        own = _bounds_of(value, axis, bounds or ())
        wrong = next(iter(_wrong(own)), None)
        is_number = not isinstance(shape.leaf.value, torch.Tensor)
        place = shape.leaf.name if is_number else f"{shape.leaf.name}[{axis}]"
        if size.free_symbols:
            guard, reason = (wrong.condition, wrong.line and f"by {wrong.line}") if wrong else ("", "")
        else:
            guard, reason = _fixing_guard(shape_env, place, asked), _why_fixed(shape_env, place, lines or {})
        return AxisOutcome(
            input=input_name(shape.leaf.name),
            axis=axis,
            asked=asked,
            size=re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(size)),
            kept=bool(size.free_symbols) and wrong is None,
            at_most=_at_most(own, shape.axes[axis]) if bounds is not None else _upper_bound(traced.ranges, size),
            reason=reason,
            guard=guard,
            is_number=is_number,
            is_optional=shape.axes[axis] == Dim.AUTO,
            bounds=tuple(own),
            was=given.get((shape.leaf.name, axis)),
            beside=() if size.free_symbols or is_number else _axes_beside(traced, shapes, shape, axis),
        )

    return [
        outcome(shape, axis, value)
        for shape, value in zip(shapes, traced.leaves, strict=True)
        for axis, asked in sorted(shape.axes.items())
        if not isinstance(asked, int)
    ]


def _wrong(bounds: Sequence[AxisBound]) -> list[AxisBound]:
    """The bounds within what was asked for, those first that leave the fewest sizes: one that is equal to something."""
    found = [bound for bound in bounds if bound.excludes_what_was_asked]
    return sorted(found, key=lambda bound: not isinstance(bound.holds, sympy.Eq))


def _all_of(conditions: Sequence[str]) -> str:
    """One of several that is an alternative stands in brackets."""
    return " and ".join(f"({one})" if " or " in one and len(conditions) > 1 else one for one in conditions)


def _listed(conditions: Sequence[str]) -> str:
    shown = _all_of(conditions[:_SHOWN])
    return f"{shown} and {len(conditions) - _SHOWN} more" if len(conditions) > _SHOWN else shown


def _axes_beside(
    traced: TracedInputs, shapes: Sequence[LeafShape], fixed: LeafShape, axis: int
) -> tuple[tuple[str, int], ...]:
    """The axes of other inputs that nobody asked for and that have the size of a fixed one; those with the same number
    alone, if there are any."""
    leaves = zip(shapes, traced.leaves, strict=True)
    tensors = [(shape, value) for shape, value in leaves if isinstance(value, torch.Tensor)]
    size = next(_size(value, axis) for shape, value in tensors if shape is fixed)
    found = [
        (input_name(shape.leaf.name), other)
        for shape, value in tensors
        for other in range(value.dim())
        if shape is not fixed and other not in shape.axes and _size(value, other) == size
    ]
    return tuple([place for place in found if place[1] == axis] or found)


def _asked(axis: Axis) -> str:
    """What the user wrote for an axis: a name, or "DYNAMIC" and the like."""
    hint = getattr(axis, "type", None)
    return name_of(axis) or str(getattr(hint, "name", axis))


def _size(value: object, axis: int) -> sympy.Expr:
    """The traced size of an axis, or the traced integer, as an expression; a constant one if torch fixed it."""
    size = value.shape[axis] if isinstance(value, torch.Tensor) else value
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.sympify(size)


def _bounds_of(value: object, axis: int, bounds: Sequence[AxisBound]) -> list[AxisBound]:
    size = value.shape[axis] if isinstance(value, torch.Tensor) else value
    if not isinstance(size, torch.SymInt):
        return []
    symbols = frozenset(map(str, size.node.expr.free_symbols | size.node._expr.free_symbols))
    return [bound for bound in bounds if bound.symbols & symbols and bound.kind != Kind.ASKED]


def _at_most(bounds: Sequence[AxisBound], asked: Axis) -> int | None:
    """The largest size, as the model or who asked for the axis bounds it."""
    found = [bound.at_most for bound in bounds if bound.kind != Kind.TESTED and bound.at_most is not None]
    highest = ends_of(asked)[1]
    found += [highest] if highest is not None else []
    return min(found, default=None)


def _upper_bound(ranges: Mapping[Any, Any], size: sympy.Expr) -> int | None:
    bounds = ranges.get(size) if size.is_Symbol else None
    upper = None if bounds is None else bounds.upper
    return int(upper) if upper is not None and upper.is_Integer else None


def _why_fixed(shape_env: object, place: str, lines: Mapping[str, str]) -> str:
    """The line of the model that made the axis a constant, if it was recorded."""
    symbols = _symbols_of(shape_env, place)
    return next(
        (f"by {lines[symbol]}" for symbol in symbols if symbol in lines), "torch.export traced it as a constant"
    )


def _symbols_of(shape_env: object, place: str) -> list[str]:
    return [symbol for symbol, source in _symbols(shape_env) if _place(source) == place]


def _fixing_guard(shape_env: object, place: str, name: str) -> str:
    """What torch assumed of the axis, in the user's words: `batch == 3`."""
    symbols = _symbols_of(shape_env, place)
    guards = getattr(shape_env, "guards", ())
    found = (guard.expr for guard in guards if symbols and symbols[0] in map(str, guard.expr.free_symbols))
    first = next(found, None)
    return "" if first is None else re.sub(rf"\b{symbols[0]}\b", name, in_python(first))


def _symbols(shape_env: Any) -> Iterator[tuple[str, str]]:
    """Each symbol of the trace with torch's name of what it stands for, `L['x']['y'].size()[1]`."""
    for symbol, sources in shape_env.var_to_sources.items() if shape_env is not None else ():
        for source in sources:
            yield str(symbol), source.name if isinstance(source.name, str) else source.name()


def _place(source: str) -> str:
    """Torch's name of a size as ours: `x.y[1]`."""
    path, _, axis = source.removeprefix("L").partition(".size()")
    steps = (step.strip("'\"[]") for step in path.split("["))
    return ".".join(step for step in steps if step) + axis
