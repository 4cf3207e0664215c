"""What counts the tokens of a cache, at other sizes of the cache: no call has one without the other.

Positions behind a past begin with its length; a static cache has its count as a tensor and as a number. A model that
is called with others does what no caller sees: a mask made of positions hides a token that no mask at all shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from exportguard.caches.layers import LENGTHS
from exportguard.inputs import Leaf, flatten_named
from exportguard.rewrites.state import is_fake

_TOKENS = -2  # the axis of them in the keys and values of a cache: batch, heads, tokens, features
_NAMED = "position"  # what an input of one position has in its name; a token may be of any number


class Counts(NamedTuple):
    """`totals` are tensors of one count, each with the place of the number among the leaves; `positions` those whose
    rows count on behind a past, each with the places of the caches that are as long."""

    totals: Mapping[int, int]
    positions: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, named: Mapping[str, Any], values: Sequence[Any]) -> Counts:
        """What counts tokens in arguments by name whose classes are registered with pytree; `values` are their leaves
        in the order in which others will be given."""
        leaves = flatten_named(named)
        if [*map(id, values)] != [id(leaf.value) for leaf in leaves]:
            return cls({}, {})
        return cls(dict(_totals(leaves)), dict(_positions(leaves)))

    def put(self, leaves: list[Any]) -> None:
        """Changes those leaves of the same call at other sizes that count tokens of the others."""
        for place, number in self.totals.items():
            leaves[place] = torch.full_like(leaves[place], leaves[number])
        for place, pasts in self.positions.items():
            made, past = leaves[place], max(leaves[past].shape[_TOKENS] for past in pasts)
            row = torch.arange(past, past + made.shape[-1], dtype=made.dtype, device=made.device)
            leaves[place] = row.expand(made.shape).clone()


def _totals(leaves: Sequence[Leaf]) -> Iterator[tuple[int, int]]:
    numbers = {leaf.name: place for place, leaf in enumerate(leaves) if type(leaf.value) is int}
    for place, leaf in enumerate(leaves):
        layer, _, kind = leaf.name.rpartition(".")
        number = numbers.get(f"{layer.rpartition('.')[0]}.length")
        is_count = kind == LENGTHS[0] and isinstance(leaf.value, torch.Tensor) and not is_fake(leaf.value)
        if number is not None and is_count and int(leaf.value) == leaves[number].value:
            yield place, number


def _positions(leaves: Sequence[Leaf]) -> Iterator[tuple[int, Sequence[int]]]:
    lengths: dict[int, list[int]] = {}
    for place, leaf in enumerate(leaves):
        if _is_of_cache(leaf):
            lengths.setdefault(leaf.value.shape[_TOKENS], []).append(place)
    for place, leaf in enumerate(leaves) if lengths else ():
        past = _first(leaf)
        if past in lengths:
            yield place, lengths[past]


def _is_of_cache(leaf: Leaf) -> bool:
    value = leaf.value
    return "." in leaf.name and isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()


def _first(leaf: Leaf) -> int:
    """What all rows of an input count on from, one by one; 0 if they do not, or nobody knows."""
    value = leaf.value
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64):
        return 0
    if not value.numel() or not value.dim() or value.is_meta or is_fake(value):
        return 0
    first, count = int(value.flatten()[0]), value.shape[-1]
    row = torch.arange(first, first + count, dtype=value.dtype, device=value.device)
    return first if (count > 1 or _NAMED in leaf.name) and bool((value == row).all()) else 0
