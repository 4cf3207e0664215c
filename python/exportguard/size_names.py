"""Which sizes of a trace a user gave different names: each may be 1 beside the other, which broadcasts it."""

from __future__ import annotations

import weakref
from typing import Any

#: By the shape environment of a trace: the name of the axis that a symbol was made for.
_NAMES: weakref.WeakKeyDictionary[Any, dict[Any, str]] = weakref.WeakKeyDictionary()


def note_name(env: Any, symbol: Any, name: str) -> None:
    """Notes what the user calls the axis of a symbol."""
    _NAMES.setdefault(env, {})[symbol] = name


def are_named_apart(one: Any, other: Any) -> bool:
    """Whether two symbolic sizes are axes of different names, as torch has not found them to be one by now."""
    names = _name_of(one), _name_of(other)
    return None not in names and names[0] != names[1]


def _name_of(size: Any) -> str | None:
    node: Any = getattr(size, "node", None)
    env = getattr(node, "shape_env", None)  # a number has no node, and the node of a nested tensor no environment
    return None if env is None else _NAMES.get(env, {}).get(node.expr)
