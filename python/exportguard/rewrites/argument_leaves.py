"""The leaves of what functions of torch take and give: those of `pytree`, which makes a tree of every argument.

Each function that a traced model calls is asked for them several times, and nearly all take no more than tuples and
lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def leaves_of(arguments: object) -> list[Any]:
    """The same as `pytree.tree_leaves`."""
    found: list[Any] = []
    _gather(arguments, found)
    return found


def tensors_of(arguments: object) -> list[torch.Tensor]:
    """The leaves that are tensors."""
    return [leaf for leaf in leaves_of(arguments) if isinstance(leaf, torch.Tensor)]


def mapped(function: Callable[[Any], Any], arguments: Any) -> Any:
    """The same as `pytree.tree_map`."""
    kind = type(arguments)
    if kind is tuple:
        return tuple([mapped(function, item) for item in arguments])
    if kind is list:
        return [mapped(function, item) for item in arguments]
    if kind is dict:
        return {key: mapped(function, item) for key, item in arguments.items()}
    return pytree.tree_map(function, arguments) if _is_of_another_kind(arguments) else function(arguments)


def _gather(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is tuple or kind is list:
        for item in value:
            _gather(item, found)
    elif kind is dict:
        for item in value.values():
            _gather(item, found)
    elif _is_of_another_kind(value):
        found += pytree.tree_leaves(value)
    else:
        found.append(value)


def _is_of_another_kind(value: object) -> bool:
    """Whether it may be a container: named tuples are by what they are, all others by their classes."""
    return type(value) in pytree.SUPPORTED_NODES or isinstance(value, tuple)
