"""Objects that both branches of a test make anew, such as layers of a cache: what is merged are their attributes.

An opened object is a dict of its attributes, with its class under a key that no attribute has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.contents import is_opaque

_CLASS = "its class"
_DEPTH = 8  # objects in objects; one that refers to itself is left as it is


class Opening:
    """Which leaves of two outcomes are objects of one class that are not the same object, level by level."""

    def __init__(self, first: object, second: object) -> None:
        self._levels: list[frozenset[int]] = []
        for _ in range(_DEPTH):
            places = _differing_objects(first, second)
            if not places:
                break
            self._levels.append(places)
            first, second = _open(first, places), _open(second, places)

    def opened(self, outcome: object) -> Any:
        """An outcome of this shape with its objects as their attributes."""
        for places in self._levels:
            outcome = _open(outcome, places)
        return outcome


def where_they_differ(name: str, first: Any, second: Any) -> tuple[str, Any, Any] | None:
    """The innermost part of two opened values that has another structure in each, with its name; None if they are
    alike.

    >>> where_they_differ("`d`", {"a": 1, "b": [1]}, {"a": 1, "b": [1, 2]})
    ("`d`['b']", [1], [1, 2])
    """
    one, other = (pytree.tree_structure(part, is_leaf=_is_leaf) for part in (first, second))
    if one == other:
        return None
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        shown = "{}.{}" if _is_opened(first) else "{}[{!r}]"
        parts = (where_they_differ(shown.format(name, key), first[key], second[key]) for key in first)
        return next((part for part in parts if part is not None), (name, first, second))
    return name, first, second


def _is_leaf(item: object) -> bool:
    return item is None


def _differing_objects(first: object, second: object) -> frozenset[int]:
    first_leaves, spec = pytree.tree_flatten(first, is_leaf=_is_leaf)
    second_leaves, other = pytree.tree_flatten(second, is_leaf=_is_leaf)
    if spec != other:
        return frozenset()
    pairs = enumerate(zip(first_leaves, second_leaves, strict=True))
    return frozenset(i for i, (a, b) in pairs if a is not b and is_object(a) and type(a) is type(b))


def is_object(item: object) -> bool:
    """Whether something is known by its attributes."""
    is_plain = isinstance(getattr(item, "__dict__", None), dict) and not is_opaque(item)
    return is_plain and not isinstance(item, torch.nn.Module | BaseException)


def _open(tree: object, places: frozenset[int]) -> Any:
    leaves, spec = pytree.tree_flatten(tree, is_leaf=_is_leaf)
    opened = [{_CLASS: type(leaf), **vars(leaf)} if i in places else leaf for i, leaf in enumerate(leaves)]
    return pytree.tree_unflatten(opened, spec)


def closed(tree: object) -> Any:
    """The tree with new objects for the attributes."""
    return pytree.tree_map(_close, tree, is_leaf=lambda item: item is None or _is_opened(item))


def _is_opened(item: object) -> bool:
    return isinstance(item, dict) and _CLASS in item


def _close(item: Any) -> Any:
    if not _is_opened(item):
        return item
    made: Any = object.__new__(item[_CLASS])
    vars(made).update({name: closed(value) for name, value in item.items() if name != _CLASS})
    return made
