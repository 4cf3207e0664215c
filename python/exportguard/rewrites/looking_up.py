"""Where a list or a tuple has a number that only the run knows: `index`, `count` and `remove`.

What Python raises where it is missing ends a run of the program: as a check, and, because a file has none, as an index
that no table has.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import torch

from exportguard.rewrites.choices import chosen_item
from exportguard.rewrites.collected import Grown, is_open
from exportguard.rewrites.data import as_flag, depends_on_data, is_tracing
from exportguard.rewrites.ends_of_runs import first_place
from exportguard.rewrites.numbers import as_number, is_number
from exportguard.rewrites.places import line_now
from exportguard.rewrites.texts import sought_
from exportguard.source.errors import RewriteError

_SEQUENCES = (list, tuple, range, collections.deque)


def member(element: Any) -> Any:
    """What is put into a set, or looked for in one, that is a list in the rewriting.

    :raises RewriteError: it is a tensor, which a set knows by the object and a list by its numbers
    """
    if isinstance(element, torch.Tensor) and not is_number(element) and is_tracing():
        raise RewriteError(
            f"{line_now()}: a tensor is put into a set or looked for in one, which knows it by the object and not by "
            "what it holds: take its number, int(…), float(…) or .item(), or go through x.tolist()"
        )
    return element


def index_(owner: Any, item: Any, *bounds: Any) -> Any:
    """`owner.index(item)`, which may be anything's method of that name."""
    if not _is_asked_by_data(owner, item, bounds):
        return owner.index(_sought_in(owner, item), *bounds)
    if any(map(depends_on_data, bounds)):
        raise RewriteError(f"{line_now()}: index(…) between numbers of tensor data; take a slice and add its start")
    start, stop = (*bounds, None, None)[:2]
    places = range(len(owner))[start:stop]
    flags = _equal_to(item, [owner[place] for place in places])
    if all(flag is False for flag in flags):
        raise ValueError(f"{item!r} is not in {type(owner).__name__}")
    found = torch.stack([as_flag(flag) for flag in flags])
    return as_number(first_place(found, is_there=any(flag is True for flag in flags)) + places.start)


def _sought_in(owner: object, item: Any) -> Any:
    return sought_(item) if isinstance(owner, str) else item


def occurrences(owner: Any, item: Any) -> Any:
    """`owner.count(item)`, which may be anything's method of that name."""
    if not _is_asked_by_data(owner, item, ()):
        return owner.count(_sought_in(owner, item))
    return as_number(torch.stack([as_flag(flag) for flag in _equal_to(item, owner)]).sum())


def remove_(owner: Any, item: Any) -> None:
    """`owner.remove(item)`, which may be anything's method of that name."""
    if not isinstance(owner, list) or not _is_asked_by_data(owner, item, ()):
        owner.remove(item)
        return
    elements, place = [*owner], index_(owner, item)
    moved = [chosen_item(elements, place.le(k) + k) for k in range(len(elements) - 1)]
    list.__setitem__(owner, slice(None), moved)


def _is_asked_by_data(owner: Any, item: Any, bounds: Iterable[Any]) -> bool:
    if not isinstance(owner, _SEQUENCES) or is_open(owner) or not len(owner):
        return False
    has_own_methods = type(owner).__module__ != "builtins" and not isinstance(owner, Grown | collections.deque)
    return not has_own_methods and any(depends_on_data(one) for one in (item, *owner, *bounds))


def _equal_to(item: Any, elements: Iterable[Any]) -> list[Any]:
    return [True if element is item else element == item for element in elements]
