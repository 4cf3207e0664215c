"""Dynamic shapes found out by looking at inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .arguments import require_callable, require_count, require_named
from .dynamic_shapes import mirror
from .errors import InvalidArgumentError
from .guard import torch_export_patches
from .inputs import Leaf, flatten_named

Sizes = Mapping[str, int]


@dataclass
class _Axis:
    """One axis of one leaf: its size in the first call, and how much it grows with each size that it follows."""

    leaf: str
    size: int
    growth: dict[str, int] = field(default_factory=dict)
    suffix: str = ""

    def predicted(self, base: Sizes, other: Sizes) -> int:
        return self.size + sum(grown * (other[name] - base[name]) for name, grown in self.growth.items())

    @property
    def label(self) -> str:
        """What grows by more than one is no such size, but a number of its own; what no longer grows is bounded."""
        names = (name if grown in (0, 1) else f"{name} of {self.leaf}" for name, grown in self.growth.items())
        return "+".join(names) + self.suffix


def observed_dynamic_shapes(make_inputs: Callable[[Sizes], Any], sizes: Sizes, others: Sequence[Sizes] = ()) -> Any:
    """Dynamic shapes nested like the inputs, each axis named after the size that it follows.

    `make_inputs(sizes)` is called once as it is and once for each size made larger by one. An axis that follows two of
    them, such as a mask over past and new tokens, is called `past+seq`. An axis that stops following its size at one of
    `others`, such as a cache that keeps no more tokens than its window, is another axis there: `past_bounded`. So is
    one that does not follow it at `sizes` any more, but is another one at `others`. Caches have the form that they have
    in an export.

    >>> observed_dynamic_shapes(lambda s: {"x": torch.zeros(s["batch"], 4)}, {"batch": 2})
    {'x': {0: 'batch'}}

    Raises:
        InvalidArgumentError: another size gives other inputs, not just other shapes.
    """
    require_callable("make_inputs", make_inputs)
    require_named("sizes", sizes)
    for name, size in sizes.items():
        require_count(f"sizes[{name!r}]", size)
    with torch_export_patches(patch=False):
        return _observed(make_inputs, sizes, others)


def _observed(make_inputs: Callable[[Sizes], Any], sizes: Sizes, others: Sequence[Sizes]) -> Any:
    inputs = make_inputs(sizes)
    base = flatten_named(inputs)
    axes = [[_Axis(leaf.name, size) for size in _sizes_of(leaf.value)] for leaf in base]
    for name in sorted(sizes):
        _add_growth(axes, name, _sizes_like(base, make_inputs({**sizes, name: sizes[name] + 1})))
    calls = [(other, _sizes_like(base, make_inputs(other))) for other in others]
    _add_sizes_left(axes, sizes, calls)
    growing = [axis for row in axes for axis in row if axis.growth]
    _share_names(growing)
    _tell_apart(growing, sizes, _by_axis(axes, calls))
    _number_lengths(growing)
    remaining = iter(zip(base, axes, strict=True))
    return mirror(inputs, lambda value: _spec(*next(remaining)))


def _sizes_of(value: object) -> tuple[int, ...]:
    """What can follow a size: the axes of a tensor, or an integer itself."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else ()


def _sizes_like(base: Sequence[Leaf], inputs: object) -> list[tuple[int, ...]]:
    leaves = flatten_named(inputs)
    _require_same_leaves(base, leaves)
    return [_sizes_of(leaf.value) for leaf in leaves]


def _add_growth(axes: Sequence[Sequence[_Axis]], name: str, sizes: Sequence[tuple[int, ...]]) -> None:
    for row, after in zip(axes, sizes, strict=True):
        for axis, size in zip(row, after, strict=True):
            if size != axis.size:
                axis.growth[name] = size - axis.size


def _add_sizes_left(
    axes: Sequence[Sequence[_Axis]], base: Sizes, calls: Sequence[tuple[Sizes, list[tuple[int, ...]]]]
) -> None:
    """An axis that is at its bound already, such as a full window, follows the size with which it is shorter."""
    for row, leaf_axes in enumerate(axes):
        for column, axis in enumerate(leaf_axes):
            left = [other for other, found in calls if not axis.growth and found[row][column] != axis.size]
            shared = [name for name in base if left and all(other[name] != base[name] for other in left)]
            axis.growth |= dict.fromkeys(shared[-1:], 0)


def _by_axis(
    axes: Sequence[Sequence[_Axis]], calls: Sequence[tuple[Sizes, list[tuple[int, ...]]]]
) -> list[list[tuple[Sizes, int]]]:
    """For each axis that follows a size, what it was in each of the calls."""
    return [
        [(other, sizes[row][column]) for other, sizes in calls]
        for row, leaf_axes in enumerate(axes)
        for column, axis in enumerate(leaf_axes)
        if axis.growth
    ]


def _share_names(axes: Sequence[_Axis]) -> None:
    """Axes that are as long and grow alike are called after the same leaf: a text, and the mask over it."""
    first: dict[tuple[int, tuple[tuple[str, int], ...]], str] = {}
    for axis in axes:
        axis.leaf = first.setdefault((axis.size, tuple(sorted(axis.growth.items()))), axis.leaf)


def _tell_apart(axes: Sequence[_Axis], base: Sizes, seen: Sequence[Sequence[tuple[Sizes, int]]]) -> None:
    """Names of their own for axes that leave their size: one name for those that leave it in the same way."""
    kinds: dict[tuple[str, tuple[int, ...]], str] = {}
    for axis, calls in zip(axes, seen, strict=True):
        if all(size == axis.predicted(base, other) for other, size in calls):
            continue
        key = axis.label, tuple(size for _, size in calls)
        number = sum(label == axis.label for label, _ in kinds)
        axis.suffix = kinds.setdefault(key, "_bounded" if not number else f"_bounded_{number + 1}")


def _number_lengths(axes: Sequence[_Axis]) -> None:
    """Axes that grow alike but are not as long, such as a text with and without a picture, get a number each."""
    lengths: dict[str, list[int]] = {}
    for axis in axes:
        label, seen = axis.label, lengths.setdefault(axis.label, [])
        if axis.size not in seen:
            seen.append(axis.size)
        number = lengths[label].index(axis.size)
        axis.suffix += f"_{number + 1}" if number else ""


def _spec(leaf: Leaf, axes: Sequence[_Axis]) -> Any:
    labels = {number: axis.label for number, axis in enumerate(axes) if axis.growth}
    return (labels or None) if isinstance(leaf.value, torch.Tensor) else labels.get(0)


def _require_same_leaves(base: Sequence[Leaf], larger: Sequence[Leaf]) -> None:
    if [leaf.name for leaf in base] != [leaf.name for leaf in larger]:
        raise InvalidArgumentError(
            f"inputs of other sizes have other parts ({len(larger)} instead of {len(base)}): dynamic shapes cannot be "
            "observed; pass them"
        )
