"""One symbol for all axes of one name, from the moment at which torch makes fake inputs.

Torch makes a symbol for each axis, and finds out while it traces which of them are equal: each layer of a model with a
cache has others, and each question of a size is another one. The patch of `named_axes` does this for a `Dim`, whose
name torch knows; names that are text are known here alone.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting
from exportguard.dynamic_shapes import LeafShape
from exportguard.example import Example, Place
from exportguard.patches.torch import named_axes
from exportguard.repeats.known_axes import axes_are_known
from exportguard.size_names import note_name

_FAKIFY = "torch._export.non_strict_utils.fakify"
_CREATE = "torch.fx.experimental.symbolic_shapes.ShapeEnv.create_symbol"

#: How torch makes inputs fake, and keeps the symbols of their axes, in 2.11 to 2.13.
_PROBE = expecting(Expected(path=_FAKIFY, parameters="mode, kp, t, ..."), named_axes.SYMBOLS)


@dataclass
class _Symbols:
    """Which axes have one name, and the symbols that they have in one trace.

    `leaf` is the number of the input that is being made fake, None between inputs.
    """

    shapes: Sequence[LeafShape]
    first: Mapping[Place, Place]  # of its name, by place
    names: Mapping[Place, str]
    mode: Any = None
    leaf: int | None = None
    leaves: int = 0
    made: dict[Place, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def of_next_leaf(self, mode: object, value: object) -> Iterator[None]:
        """While the next leaf of the inputs is made fake; leaves come in the order of `shapes`."""
        if mode is not self.mode:
            self.mode, self.leaves = mode, 0
            self.made.clear()
        asked = self.shapes[self.leaves].leaf.value if self.leaves < len(self.shapes) else None
        is_asked = type(value) is torch.Tensor and isinstance(asked, torch.Tensor) and asked.shape == value.shape
        self.leaf = self.leaves if is_asked else None
        self.leaves += 1
        try:
            yield
        finally:
            self.leaf = None

    def known_axes(self) -> dict[int, Any] | None:
        """The symbols of the leaf's axes that were asked for; None if one of them has none yet."""
        if self.leaf is None:
            return None
        firsts = {axis: self.first.get(Place(self.leaf, axis)) for axis in self.shapes[self.leaf].axes}
        known = {axis: self.made.get(first) for axis, first in firsts.items() if first is not None}
        return known if len(known) == len(firsts) and None not in known.values() else None

    def place_of(self, env: object, axis: int) -> Place | None:
        """An axis of the leaf, if a symbol is made for that."""
        return None if self.leaf is None or env is not self.mode.shape_env else Place(self.leaf, axis)


def one_symbol_for_a_name(example: Example) -> tuple[Patch, ...]:
    """Patches for an export with this example; none if there are no two axes with names."""
    same = [relation for relation in example.relations if len(relation.sum_of) == 1]
    labels = (
        (Place(leaf, axis), shape.label(axis)) for leaf, shape in enumerate(example.shapes) for axis in shape.axes
    )
    names = {place: label for place, label in labels if label is not None}
    if not same and len({*names.values()}) < 2:
        return ()
    firsts = {relation.sum_of[0] for relation in same}
    first = {**{place: place for place in firsts}, **{relation.place: relation.sum_of[0] for relation in same}}
    symbols = _Symbols(example.shapes, first, names)
    reason = "torch has as many symbols as axes, though those of one name are equal, and traces each layer with others"
    return (
        Patch(
            name="inputs whose axes are named",
            kind="custom",
            target=_FAKIFY,
            reason=reason,
            probe=_PROBE,
            replace=functools.partial(_counting, symbols),
        ),
        Patch(
            name="one symbol for a name",
            kind="custom",
            target=_CREATE,
            reason=reason,
            probe=_PROBE,
            replace=functools.partial(_sharing, symbols),
        ),
    )


def _counting(symbols: _Symbols, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fakify(mode: object, kp: object, t: object, *args: Any, **kwargs: Any) -> Any:
        with symbols.of_next_leaf(mode, t), axes_are_known(symbols.known_axes):
            return original(mode, kp, t, *args, **kwargs)

    return fakify


def _sharing(symbols: _Symbols, original: Callable[..., Any]) -> Callable[..., Any]:
    # Not at the top: they take long to import, and whoever exports has them by now.
    from torch._dynamo.source import TensorProperty, TensorPropertySource

    @functools.wraps(original)
    def create_symbol(env: Any, val: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        is_size = isinstance(source, TensorPropertySource) and source.prop is TensorProperty.SIZE
        # Of an input that is a view, torch makes the tensor that is viewed fake first, whose axes are others.
        is_size = is_size and not _is_of_viewed(source)
        place = symbols.place_of(env, source.idx) if is_size else None
        first = None if place is None else symbols.first.get(place)
        known = symbols.made.get(first) if first is not None else None
        if known is not None:
            named_axes.add_source(env, known, source)
            return known
        made = original(env, val, source, *args, **kwargs)
        if first is not None and made.is_Symbol:
            symbols.made[first] = made
        if place is not None and place in symbols.names and made.is_Symbol:
            note_name(env, made, symbols.names[place])
        return made

    return create_symbol


def _is_of_viewed(source: Any) -> bool:
    return getattr(source.base, "member", None) == "_base"
