"""Examples of size 1 made larger: torch.export takes 0 and 1 for constants, and they are what is passed first.

The axes that were asked to change are enlarged by the export itself. Sizes that belong together grow together: axes of
one name, sums of names, and where there are no names those that the model does not take otherwise.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from exportguard.dynamic_shapes import LeafShape
from exportguard.errors import InvalidArgumentError
from exportguard.inputs import CallInputs, Leaf

from .relations import Place, relations
from .resizing import wrapped
from .trial import refuses

logger = logging.getLogger(__name__)

_SIZES = (2, 3, 5, 7, 11)  # of the groups that grow, unlike each other so that none is taken for another
_TIED = 3  # further groups that may have to grow along

Growth = Mapping[Place, int]


def enlarged(
    model: torch.nn.Module, call: CallInputs, shapes: Sequence[LeafShape]
) -> tuple[CallInputs, list[LeafShape]]:
    """The call with at least two of everything along the axes that were asked for, and the shapes with its leaves.

    The classes in the call are registered with pytree. A call that is large enough comes back as it is.

    Raises:
        InvalidArgumentError: the model takes none of the larger inputs that were tried.
    """
    small = [place for place, size in _asked(shapes).items() if size < 2]
    if not small:
        return call, list(shapes)
    leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    for growth in _candidates(shapes, small):
        larger = [_grown(leaf, number, growth) for number, leaf in enumerate(leaves)]
        args, kwargs = pytree.tree_unflatten(larger, spec)
        candidate = CallInputs(args, kwargs)
        if not refuses(model, candidate, call):
            logger.info("the example is enlarged: %s", _told(shapes, growth))
            return candidate, [_with_leaf(shape, leaf) for shape, leaf in zip(shapes, larger, strict=True)]
    raise InvalidArgumentError(_refusal(shapes, small))


def small_sizes(shapes: Sequence[LeafShape]) -> dict[tuple[str, int], int]:
    """The sizes, by input and axis, that were asked to change and that torch would make constants."""
    return {(shapes[place.leaf].leaf.name, place.axis): size for place, size in _asked(shapes).items() if size < 2}


def _asked(shapes: Sequence[LeafShape]) -> dict[Place, int]:
    """The axes of tensors that were asked to change, with their sizes."""
    return {
        Place(number, axis): shape.leaf.value.shape[axis]
        for number, shape in enumerate(shapes)
        if isinstance(shape.leaf.value, torch.Tensor)
        for axis, asked in shape.axes.items()
        if not isinstance(asked, int) and asked not in (None, Dim.STATIC, Dim.AUTO) and not _is_derived(asked)
    }


def _is_derived(asked: Any) -> bool:
    return type(asked).__name__ in ("_DerivedDim", "_StaticDim")


def _candidates(shapes: Sequence[LeafShape], small: Sequence[Place]) -> Iterator[Growth]:
    """What may grow, and by how much, the likely first: what has to, then what it may be tied to."""
    groups = _groups(shapes)
    must = [group for group in groups if any(place in small for place in group)]
    may = [group for group in groups if group not in must]
    steps = [
        size - min(_asked(shapes)[place] for place in group) for group, size in zip(must, _SIZES * 9, strict=False)
    ]
    for amounts in (steps, [2 - min(_asked(shapes)[place] for place in group) for group in must]):
        base = {place: step for group, step in zip(must, amounts, strict=True) for place in group}
        for count in range(min(_TIED, len(may)) + 1):
            for tied in itertools.combinations(may, count):
                for along in itertools.product(sorted(set(amounts)), repeat=count):
                    extra = {place: step for group, step in zip(tied, along, strict=True) for place in group}
                    yield _with_sums(shapes, {**base, **extra})


def _groups(shapes: Sequence[LeafShape]) -> list[list[Place]]:
    """Axes that grow together: those of one name, and without names those of one position and size."""
    groups: dict[Any, list[Place]] = {}
    for place, size in _asked(shapes).items():
        label = shapes[place.leaf].label(place.axis)
        if label is not None and "+" in label and any(one.place == place for one in relations(shapes)):
            continue  # a sum follows
        groups.setdefault(label if label is not None else (place.axis, size), []).append(place)
    return list(groups.values())


def _with_sums(shapes: Sequence[LeafShape], growth: dict[Place, int]) -> Growth:
    for relation in relations(shapes):
        if len(relation.sum_of) > 1:
            growth[relation.place] = sum(growth.get(part, 0) for part in relation.sum_of)
    for relation in relations(shapes):
        if len(relation.sum_of) == 1:
            growth[relation.place] = growth.get(relation.sum_of[0], 0)
    return growth


def _grown(leaf: Any, number: int, growth: Growth) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    shape = [size + growth.get(Place(number, axis), 0) for axis, size in enumerate(leaf.shape)]
    return leaf if shape == list(leaf.shape) else wrapped(leaf, shape)


def _with_leaf(shape: LeafShape, value: Any) -> LeafShape:
    return replace(shape, leaf=Leaf(shape.leaf.name, value))


def _told(shapes: Sequence[LeafShape], growth: Growth) -> str:
    return ", ".join(
        f"axis {place.axis} of {shapes[place.leaf].leaf.name} from {size} to {size + growth[place]}"
        for place, size in _asked(shapes).items()
        if growth.get(place)
    )


def _refusal(shapes: Sequence[LeafShape], small: Sequence[Place]) -> str:
    place = small[0]
    shape = shapes[place.leaf]
    name = shape.label(place.axis) or shape.axes[place.axis]
    return (
        f"axis {place.axis} of {shape.leaf.name} ({name}) has size {_asked(shapes)[place]} in the example, and "
        "torch.export turns sizes 0 and 1 into constants; the model takes none of the larger examples that were tried: "
        "export with an example of at least 2, the model then runs with 1"
    )
