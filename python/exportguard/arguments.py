"""Arguments of public functions: what is of a wrong kind is named before anything is done."""

from __future__ import annotations

import os
import types
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import InvalidArgumentError

_Kinds = type | types.UnionType | tuple[type, ...]
_MOST = 2**63 - 1


def require_kind(name: str, value: object, kinds: _Kinds, wanted: str) -> None:
    """Raises unless `value` is of one of the kinds; `wanted` says so in words.

    >>> require_kind("strict", True, bool, "True or False")

    Raises:
        InvalidArgumentError: naming the argument, what was wanted, and what came.
    """
    if not isinstance(value, kinds):
        raise wrong(name, value, wanted)


def wrong(name: str, value: object, wanted: str) -> InvalidArgumentError:
    """The error for an argument."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 and "\n" not in shown else f"a {type(value).__name__}"
    return InvalidArgumentError(f"{name} must be {wanted}, got {shown}")


def require_flags(**values: Any) -> None:
    """Raises for the first one that is neither True nor False."""
    for name, value in values.items():
        require_kind(name, value, bool, "True or False")


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raises unless the value is one of the words."""
    if not isinstance(value, str) or value not in choices:
        raise wrong(name, value, " or ".join(map(repr, choices)))


def require_callable(name: str, value: object, wanted: str = "a function") -> None:
    """Raises unless the value can be called."""
    if not callable(value):
        raise wrong(name, value, wanted)


def require_count(name: str, value: object, at_least: int = 0) -> None:
    """Raises unless the value is an integer that is large enough, and that int64 holds."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise wrong(name, value, f"an integer of at least {at_least}")
    if value > _MOST:
        raise wrong(name, value, f"an integer of at most {_MOST}, the largest of int64")


def require_names(name: str, value: Any) -> None:
    """Raises unless the value is None or a sequence of different names."""
    if value is None:
        return
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not is_sequence or not all(isinstance(name, str) and name for name in value):
        raise wrong(name, value, "a list of names")
    twice = next((name for name in value if list(value).count(name) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(f"{name} has {twice!r} twice; give each value a name of its own")


def require_named(name: str, value: object) -> None:
    """Raises unless the value is a mapping by names."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise wrong(name, value, "a dictionary by name")


def path_of(name: str, value: object) -> Path:
    """The value as a path.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise wrong(name, value, "a path")
    if not text or "\0" in text:
        raise wrong(name, value, "the path of a file")
    return Path(text)


def sizes_of(text: str) -> dict[str, int]:
    """Sizes of axes by name, as a command line has them.

    >>> sizes_of("batch=2,seq=7")
    {'batch': 2, 'seq': 7}

    Raises:
        InvalidArgumentError: the text is of another form.
    """
    sizes = {}
    for part in filter(None, text.split(",")):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdigit():
            raise InvalidArgumentError(f"sizes must be like batch=2,seq=7, got {text!r}")
        sizes[name.strip()] = int(size)
    return sizes
