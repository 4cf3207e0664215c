"""What the names of axes say about their sizes: axes of one name are equal, `past+seq` is a sum of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.dynamic_shapes import LeafShape

_check: Any = torch._check


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


def relations(shapes: Sequence[LeafShape]) -> list[Relation]:
    """What the names say, as far as it is true of the example: another `a+b` is a name like any other."""
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
    yield from (one for one in numbers if one[0] not in seen)


def _is_one_symbol(sizes: Sequence[torch.SymInt]) -> bool:
    """Whether torch knows already that two sizes are equal; to ask it would make nodes."""
    return len(sizes) == 2 and sizes[0].node.expr == sizes[1].node.expr


@contextmanager
def told_to_torch(model: torch.nn.Module, shapes: Sequence[LeafShape]) -> Iterator[None]:
    """While the block traces the model, torch knows from the beginning what the names say.

    It then takes one symbol for all sizes that are equal, and notes no guard for what follows from the names.
    """
    known = relations(shapes)

    def tell(_: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        leaves = pytree.tree_leaves((args, dict(kwargs)))
        for relation in known:
            sizes = [place.size(leaves) for place in (relation.place, *relation.sum_of)]
            if all(isinstance(size, torch.SymInt) for size in sizes) and not _is_one_symbol(sizes):
                _check(sizes[0] == sum(sizes[1:]))

    handle = model.register_forward_pre_hook(tell, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        handle.remove()
