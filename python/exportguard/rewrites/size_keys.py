"""Dicts whose keys are dynamic sizes, as what keeps a mask for each length: `if n not in self.masks: …`.

Python finds a key by its hash, which a size has none of while a program is traced. An object stands for it in the dict,
and whether it is one of the other keys is asked of each, which is a test on sizes as any other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from exportguard.rewrites.data import depends_on_data, is_tracing
from exportguard.rewrites.recording import bodies_now
from exportguard.rewrites.state import MISSING

_SYMBOLS = (torch.SymInt, torch.SymFloat)
_KEPT = "__exportguard_of_sizes__"
_ENTRIES: list[tuple[MutableMapping[Any, Any], Any, Any]] = []  # that go with the trace


class SizeKey:
    """What stands in a dict for a key with dynamic sizes."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self._text = _text_of(key)

    def __repr__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizeKey) and self._text == other._text


def _text_of(key: object) -> str:
    if isinstance(key, tuple):
        return f"({','.join(map(_text_of, key))})"
    return str(key.node.expr) if isinstance(key, _SYMBOLS) else repr(key)


def _has_size(key: object) -> bool:
    if isinstance(key, tuple):
        return any(map(_has_size, key))
    return isinstance(key, _SYMBOLS) and not depends_on_data(key)


def key_in(container: Any, key: Any) -> Any:
    """The key by which a dict or set has, or is to have, an entry."""
    if not isinstance(container, dict | set | frozenset):
        return key
    if not _has_size(key):
        others = [other for other in container if isinstance(other, SizeKey)]
        is_plain = others and not any(map(depends_on_data, key if isinstance(key, tuple) else (key,)))
        if not is_plain or key in container:
            return key
        return next((other for other in others if _is_same(other.key, key)), key)
    made = SizeKey(key)
    if made in container:
        return made
    return next((other for other in container if _is_same(getattr(other, "key", other), key)), made)


def _is_same(known: Any, key: Any) -> bool:
    """Whether two keys are equal; what Python knows of them is asked first."""
    if not isinstance(known, tuple) or not isinstance(key, tuple):
        is_one = isinstance(known, tuple) or isinstance(key, tuple)
        return False if is_one else bool(known == key)
    if len(known) != len(key):
        return False
    pairs = sorted(zip(known, key, strict=True), key=_has_size)
    return all(_is_same(a, b) for a, b in pairs)


def note_entry(container: Any, key: object, content: object) -> None:
    """Notes that a dict gets an entry that only the trace knows."""
    is_of_trace = isinstance(key, SizeKey) or any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(content))
    if is_of_trace and isinstance(container, dict):
        _ENTRIES.append((container, key, container.get(key, MISSING)))


def remove_entries() -> None:
    """Puts back what dicts held before a trace that has ended."""
    while _ENTRIES:
        container, key, before = _ENTRIES.pop()
        if before is MISSING:
            container.pop(key, None)
        else:
            container[key] = before


@dataclass(frozen=True, eq=False)
class _Argument:
    """What a cached function takes for another argument than any number or text: it is this very object.

    Python would go by its hash. That of a tensor, a layer or another object is its own, while two of them may well be
    written alike.
    """

    value: Any

    @staticmethod
    def of(item: Any) -> Any:
        """An argument as a key knows it."""
        if isinstance(item, tuple):
            return tuple(map(_Argument.of, item))
        return item if isinstance(item, (*_SYMBOLS, bool, int, float, str, NoneType)) else _Argument(item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Argument) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__} at {id(self.value)}>"


def uncached(function: Any) -> Callable[..., Any]:
    """A function under `functools.lru_cache`: called with dynamic sizes, it is what it caches the results of."""
    if not isinstance(function, functools._lru_cache_wrapper):
        return function  # type: ignore[no-any-return]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = tuple(map(_Argument.of, (*args, *(item for pair in sorted(kwargs.items()) for item in pair))))
        return _of_sizes(function, given, args, kwargs) if is_tracing() else function(*args, **kwargs)

    return call


def _of_sizes(function: Any, given: tuple[Any, ...], args: Any, kwargs: dict[str, Any]) -> Any:
    """One object for each call with the same sizes in one branch or step, as the cache gives."""
    kept = vars(function).setdefault(_KEPT, {})
    key = SizeKey(given), tuple(map(id, bodies_now()))
    if key not in kept:
        _ENTRIES.append((kept, key, MISSING))
        kept[key] = function.__wrapped__(*args, **kwargs)
    return kept[key]
