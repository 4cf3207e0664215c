"""Numbers among inputs that point beyond an axis where it is shorter: positions, lengths, rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from exportguard.inputs import CallInputs

from .resizing import is_of_integers, is_of_reals


def with_numbers_within(call: CallInputs, known: CallInputs) -> Iterator[CallInputs]:
    """The same call with numbers that are positions, or else lengths, within the axes that are shorter than those of a
    known call, and within one entry at last; in integers alone, and then in floating numbers as well, where some of the
    known call's are whole.

    The longest axis comes first: many positions tell more than the first alone. None if no axis is shorter, or all
    numbers are within them.
    """
    leaves = call.leaves()
    pairs = list(zip(leaves, known.leaves(), strict=True))
    sizes = {size for one, other in pairs for size in _shorter(one, other)}
    if not sizes:
        return
    integers = [is_of_integers(leaf) for leaf in leaves]
    with_floats = [
        is_integer or _holds_whole_numbers(other) for is_integer, (_, other) in zip(integers, pairs, strict=True)
    ]
    for meant in (integers, with_floats)[: 1 if with_floats == integers else 2]:
        for size in sorted({*sizes, 1}, reverse=True):
            for within in (_positions, _lengths):
                changed = [within(leaf, size) if is_one else leaf for leaf, is_one in zip(leaves, meant, strict=True)]
                if any(one is not other for one, other in zip(changed, leaves, strict=True)):
                    yield call.with_leaves(changed)


def _shorter(one: object, other: object) -> set[int]:
    """The sizes of the axes of a tensor that are shorter than those of another, and have an entry."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return set()
    return {size for size, had in zip(one.shape, other.shape, strict=False) if 0 < size < had}


def _holds_whole_numbers(leaf: Any) -> bool:
    """Whether some floating numbers are positions, if they are any."""
    return is_of_reals(leaf) and bool(((leaf > 0) & (leaf == leaf.trunc())).any())


def _positions(values: torch.Tensor, size: int) -> torch.Tensor:
    return _where((values >= size) | (values < -size), values.remainder(size), values)


def _lengths(values: torch.Tensor, size: int) -> torch.Tensor:
    return _where(values > size, values.clamp(max=size), values)


def _where(changed: torch.Tensor, others: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The tensor itself where nothing changes. What never fell does not: where bags begin, of which kernels go on."""
    if not bool(changed.any()):
        return values
    found = torch.where(changed, others, values)
    is_in_order = values.dim() == 1 and bool((values[1:] >= values[:-1]).all())
    return found.sort().values if is_in_order else found
