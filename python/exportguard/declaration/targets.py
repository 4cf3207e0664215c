"""What a patch replaces, found by its dotted path."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exportguard.errors import GuardError


class TargetMissingError(GuardError):
    """A dotted path leads nowhere in the installed version."""


@dataclass(frozen=True)
class Target:
    """An attribute that can be replaced: `owner.name`, and what is there now, taken raw from where it is defined."""

    owner: Any
    name: str
    raw: Any
    is_there: bool = True

    @property
    def function(self) -> Any:
        """The function behind a staticmethod or classmethod, else the object itself."""
        return self.raw.__func__ if isinstance(self.raw, (staticmethod, classmethod)) else self.raw

    def wrapped_as_before(self, function: object) -> Any:
        """`function` as a staticmethod or classmethod if the target is one, unless it says itself what it is."""
        if isinstance(function, (staticmethod, classmethod, property)):
            return function
        kind = type(self.raw)
        return kind(function) if kind in (staticmethod, classmethod) else function


def _import_longest_prefix(path: str) -> tuple[types.ModuleType, Sequence[str]]:
    for name, rest in _splits(path):
        module = sys.modules.get(name)
        if module is not None:
            if (not rest or rest[0] in vars(module)) and not _is_being_imported(module):
                return module, rest
            break
    parts = path.split(".")
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
        try:
            return importlib.import_module(name), parts[size:]
        except ModuleNotFoundError as error:
            # A module that is there but misses one of its own imports is another matter.
            if error.name is None or not name.startswith(error.name):
                raise TargetMissingError(f"{name} cannot be imported: {error}") from error
    raise TargetMissingError(f"there is no module {parts[0]}")


@functools.cache
def _splits(path: str) -> Sequence[tuple[str, Sequence[str]]]:
    """Each name of a module that a path may begin with, the longest first, and what is behind it."""
    parts = path.split(".")
    return [(".".join(parts[:size]), parts[size:]) for size in range(len(parts), 0, -1)]


def _is_being_imported(module: types.ModuleType) -> bool:
    """Whether another thread may still run it: `import_module` waits for that."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def resolve_object(path: str) -> Any:
    """The object at a dotted path such as "torch.nn.Linear".

    :raises TargetMissingError: if it is not there
    """
    module, names = _import_longest_prefix(path)
    try:
        return functools.reduce(getattr, names, module)
    except AttributeError as error:
        raise TargetMissingError(f"there is no {path}: {error}") from error


def raw_attribute(owner: object, name: str) -> Any:
    """What `owner` or one of its bases has under this name, no descriptor bound.

    :raises TargetMissingError: if it is not there
    """
    holders = [owner, *getattr(owner, "__mro__", ())[1:]]
    for holder in holders:
        if name in vars(holder):
            return vars(holder)[name]
    raise TargetMissingError(f"{getattr(owner, '__name__', owner)} has no attribute {name}")


def resolve(path: str) -> Target:
    """The attribute at a dotted path such as "torch.nn.Linear.forward".

    :raises TargetMissingError: if it is not there
    """
    owner_path, _, name = path.rpartition(".")
    owner = resolve_object(owner_path)
    return Target(owner, name, raw_attribute(owner, name))
