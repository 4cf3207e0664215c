"""The classes and modules of a package, those that come while a guard is open as well."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from exportguard import _core
from exportguard.declaration.imports import Waiting

if TYPE_CHECKING:
    from exportguard._core import Changes


def with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """The class and all that derive from it."""
    yield cls
    for subclass in cls.__subclasses__():
        yield from with_subclasses(subclass)


def classes_of(module: types.ModuleType) -> list[type[Any]]:
    """The classes that the module defines, those that it imports left out."""
    values = list(vars(module).values())
    return [value for value in values if isinstance(value, type) and value.__module__ == module.__name__]


Action = Callable[["Changes", types.ModuleType], None]


class _LateModules:
    """Acts on every module of a package that is imported while a guard is open."""

    def __init__(self, package: str, act: Action) -> None:
        self._act = act
        self._changes = _core.KeptChanges()
        self._waiting = Waiting(lambda name: name.startswith(f"{package}."), self._imported)

    def wait(self, changes: Changes, what: str) -> None:
        changes.call(self._waiting.start, self._undo, what)

    def _imported(self, module: types.ModuleType) -> None:
        self._act(self._changes, module)

    def _undo(self) -> None:
        self._waiting.stop()
        self._changes.undo()


def for_later_modules(changes: Changes, package: str, act: Action) -> None:
    """Runs `act(changes, module)` for each module of the package that is imported before these changes are undone."""
    _LateModules(package, act).wait(changes, f"modules of {package} that come later")
