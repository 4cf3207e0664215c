"""An example of a model's inputs, with what was asked of its sizes.

The names of axes say something about them: axes of one name are equal, `past+seq` is a sum of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim

from .dynamic_shapes import DynamicShapes, LeafShape, is_derived, normalise
from .inputs import CallInputs, Leaf


@dataclass(frozen=True)
class Place:
    """An axis of a leaf, or a number, which has axis 0."""

    leaf: int
    axis: int

    def size(self, leaves: Sequence[Any]) -> Any:
        """The size in these leaves."""
        value = leaves[self.leaf]
        return value.shape[self.axis] if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True)
class Relation:
    """The size at one place is the sum of those at others."""

    place: Place
    sum_of: tuple[Place, ...]

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether the sizes of these leaves are so."""
        return bool(self.place.size(leaves) == sum(part.size(leaves) for part in self.sum_of))


@dataclass(frozen=True)
class Example:
    """A call to export with, and what was asked of its sizes.

    `shapes` has one entry for each leaf of the call, `sizes` those of the axes of tensors that were asked to change.
    `relations` are what the names say, as far as it is true of the call: another `a+b` is a name like any other.
    """

    call: CallInputs
    shapes: Sequence[LeafShape]
    sizes: Mapping[Place, int]
    relations: Sequence[Relation]

    @classmethod
    def of(cls, call: CallInputs, dynamic_shapes: DynamicShapes) -> Example:
        """The call, with what a user asks for.

        Raises:
            InvalidArgumentError: that is not for this call (see `normalise`).
        """
        return cls._of(call, normalise(call, dynamic_shapes))

    @classmethod
    def _of(cls, call: CallInputs, shapes: Sequence[LeafShape]) -> Example:
        return cls(call, shapes, _sizes(shapes), _relations(shapes))

    def like(self, call: CallInputs) -> Example:
        """The same asked of another call, which has the same leaves at other sizes."""
        pairs = zip(self.shapes, call.leaves(), strict=True)
        return self._of(call, [replace(shape, leaf=Leaf(shape.leaf.name, value)) for shape, value in pairs])

    def has_indices(self) -> bool:
        """Whether some inputs are integers, which may count what there is along an axis."""
        values = [shape.leaf.value for shape in self.shapes]
        return any(isinstance(value, torch.Tensor) and not value.is_floating_point() for value in values)

    def small_sizes(self) -> dict[tuple[str, int], int]:
        """The sizes, by input and axis, that were asked to change and that torch would make constants."""
        sizes = self.sizes.items()
        return {(self.shapes[place.leaf].leaf.name, place.axis): size for place, size in sizes if size < 2}


def _sizes(shapes: Sequence[LeafShape]) -> dict[Place, int]:
    return {
        Place(number, axis): shape.leaf.value.shape[axis]
        for number, shape in enumerate(shapes)
        if isinstance(shape.leaf.value, torch.Tensor)
        for axis, asked in shape.axes.items()
        if not isinstance(asked, int) and asked not in (None, Dim.STATIC, Dim.AUTO) and not is_derived(asked)
    }


def _relations(shapes: Sequence[LeafShape]) -> list[Relation]:
    leaves = [shape.leaf.value for shape in shapes]
    found = [Relation(place, parts) for place, parts in _related(shapes)]
    return [relation for relation in found if relation.holds(leaves)]


def _related(shapes: Sequence[LeafShape]) -> Iterator[tuple[Place, tuple[Place, ...]]]:
    named = list(_named(shapes))
    first: dict[str, Place] = {}
    for name, place in named:
        first.setdefault(name, place)
    for name, place in named:
        parts = [part.strip() for part in name.split("+")]
        if first[name] != place:
            yield place, (first[name],)
        elif len(parts) > 1 and all(part in first for part in parts):
            yield place, tuple(first[part] for part in parts)


def _named(shapes: Sequence[LeafShape]) -> Iterator[tuple[str, Place]]:
    """The axes of tensors with a name, numbers of a name that no axis has behind them."""
    numbers = []
    for number, shape in enumerate(shapes):
        for axis in shape.axes:
            name = shape.label(axis)
            if name is not None and isinstance(shape.leaf.value, torch.Tensor):
                yield name, Place(number, axis)
            elif name is not None:
                numbers.append((name, Place(number, axis)))
    seen = {shape.label(axis) for shape in shapes for axis in shape.axes if isinstance(shape.leaf.value, torch.Tensor)}
    yield from ((name, place) for name, place in numbers if name not in seen)
