"""Comparisons of tuples and lists that hold tensor data: by the first of their elements that differ, as in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import Grown
from exportguard.rewrites.conditional import ifexp
from exportguard.rewrites.data import depends_on_data


def are_tuples_of_data(one: object, other: object) -> bool:
    """Whether two tuples, or two lists of known length, are compared of which tensor data decides."""
    are_tuples = isinstance(one, tuple) and isinstance(other, tuple)
    are_lists = isinstance(one, list) and isinstance(other, list)
    is_open = any(isinstance(item, Grown) and item.is_open for item in (one, other))
    return (are_tuples or are_lists) and not is_open and any(map(depends_on_data, pytree.tree_leaves((one, other))))


def less(one: Any, other: Any) -> Any:
    """`one < other`."""
    return _decided(one, other, less, len(one) < len(other)) if are_tuples_of_data(one, other) else one < other


def equal(one: Any, other: Any) -> Any:
    """`one == other`."""
    if not are_tuples_of_data(one, other):
        return one == other
    return _decided(one, other, lambda a, b: False, True) if len(one) == len(other) else False


def _decided(one: Any, other: Any, differ: Callable[[Any, Any], Any], alike: bool, place: int = 0) -> Any:
    """What the first elements that differ say; `alike` where there are none."""
    if place == min(len(one), len(other)):
        return alike
    first, second = one[place], other[place]
    return ifexp(
        equal(first, second),
        lambda: _decided(one, other, differ, alike, place + 1),
        lambda: differ(first, second),
    )
