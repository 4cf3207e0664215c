"""Examples of size 1 made larger: torch.export takes 0 and 1 for constants, and they are what is passed first.

So it is with sizes at which a part has one entry, as `x[:, ::2]` of two columns: such an axis has one size in the
program, and is enlarged behind the first export.

The axes that were asked to change are enlarged by the export itself. Sizes that belong together grow together: axes of
one name, sums of names, and where there are no names those that the model does not take otherwise.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from exportguard.errors import InvalidArgumentError
from exportguard.example import Example, Place
from exportguard.inputs import CallInputs

from .counts import Counts
from .resizing import wrapped

logger = logging.getLogger(__name__)

_SIZES = (2, 3, 5, 7, 11)  # of the groups that grow, unlike each other so that none is taken for another
_FURTHER = (11, 13, 17, 19, 23)  # what is added where a size was taken for the only one: more than steps of slices
_TIED = 3  # further groups that may have to grow along
_TRIED = 16  # calls of a model for sizes that it may not take otherwise

Growth = Mapping[Place, int]


def enlarged(example: Example, takes: Callable[[CallInputs], bool], fixed: Collection[Place] = ()) -> Example:
    """The same with at least two of everything along the axes that were asked for, and with more along those that are
    `fixed` to their size; as it is, if it is large enough.

    `takes` says whether the model takes a call. The classes in the call are registered with pytree.

    Raises:
        InvalidArgumentError: the model takes none of the larger inputs that were tried.
    """
    sizes = _Sizes(example, fixed)
    if not sizes.small:
        return example
    leaves = example.call.leaves()
    counts = Counts.of(example.call.named, leaves)
    for growth in itertools.islice(sizes.candidates(), _TRIED if fixed else None):
        grown = [_grown(leaf, number, growth) for number, leaf in enumerate(leaves)]
        counts.put(grown)
        larger = example.call.with_leaves(grown)
        if takes(larger):
            logger.info("the example is enlarged: %s", sizes.told(growth))
            return example.like(larger)
    raise InvalidArgumentError(sizes.refusal())


class _Sizes:
    """The sizes that were asked to change, and which of them belong together."""

    def __init__(self, example: Example, fixed: Collection[Place]) -> None:
        self._shapes, self._relations = example.shapes, example.relations
        self._asked = example.sizes
        self.small = [place for place, size in self._asked.items() if size < 2 or place in fixed]

    def candidates(self) -> Iterator[Growth]:
        """What may grow, and by how much, the likely first: what has to, then what it may be tied to."""
        groups = self._groups()
        must = [group for group in groups if any(place in self.small for place in group)]
        may = [group for group in groups if group not in must]
        least = [min(self._asked[place] for place in group) for group in must]
        pairs = zip(least, _SIZES * 9, _FURTHER * 9, strict=False)
        unlike = [size - known if known < 2 else further for known, size, further in pairs]
        for amounts in (unlike, [2 - known if known < 2 else known for known in least]):
            base = _grows(must, amounts)
            for count in range(min(_TIED, len(may)) + 1):
                for tied in itertools.combinations(may, count):
                    for along in itertools.product(sorted(set(amounts)), repeat=count):
                        yield self._with_sums({**base, **_grows(tied, along)})

    def _groups(self) -> list[list[Place]]:
        """Axes that grow together: those of one name, and without names those of one position and size."""
        sums = {relation.place for relation in self._relations}
        groups: dict[Any, list[Place]] = {}
        for place, size in self._asked.items():
            label = self._shapes[place.leaf].label(place.axis)
            if label is not None and "+" in label and place in sums:
                continue  # a sum follows
            groups.setdefault(label if label is not None else (place.axis, size), []).append(place)
        return list(groups.values())

    def _with_sums(self, growth: dict[Place, int]) -> Growth:
        for relation in self._relations:
            if len(relation.sum_of) > 1:
                growth[relation.place] = sum(growth.get(part, 0) for part in relation.sum_of)
        for relation in self._relations:
            if len(relation.sum_of) == 1:
                growth[relation.place] = growth.get(relation.sum_of[0], 0)
        return growth

    def told(self, growth: Growth) -> str:
        """What grows, for the log."""
        return ", ".join(
            f"axis {place.axis} of {self._shapes[place.leaf].leaf.name} from {size} to {size + growth[place]}"
            for place, size in self._asked.items()
            if growth.get(place)
        )

    def refusal(self) -> str:
        """What is said where the model takes no larger example."""
        place = self.small[0]
        shape = self._shapes[place.leaf]
        name = shape.label(place.axis) or shape.axes[place.axis]
        return (
            f"axis {place.axis} of {shape.leaf.name} ({name}) has size {self._asked[place]} in the example, and "
            "torch.export turns sizes 0 and 1 into constants; the model takes none of the larger examples that were "
            "tried: export with an example of at least 2, the model then runs with 1"
        )


def _grows(groups: Sequence[Sequence[Place]], amounts: Sequence[int]) -> dict[Place, int]:
    return {place: amount for group, amount in zip(groups, amounts, strict=True) for place in group}


def _grown(leaf: object, number: int, growth: Growth) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    shape = [size + growth.get(Place(number, axis), 0) for axis, size in enumerate(leaf.shape)]
    return leaf if shape == list(leaf.shape) else wrapped(leaf, shape)
