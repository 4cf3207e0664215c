"""The classes and modules of a package, those that come while a guard is open as well."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from exportguard.declaration.imports import Waiting

if TYPE_CHECKING:
    from exportguard._core import Changes, LaterChanges


def with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """The class and all that derive from it."""
    yield cls
    for subclass in cls.__subclasses__():
        yield from with_subclasses(subclass)


def classes_of(module: types.ModuleType) -> list[type[Any]]:
    """The classes that the module defines, those that it imports left out."""
    values = list(vars(module).values())
    return [value for value in values if isinstance(value, type) and value.__module__ == module.__name__]


def imported_models() -> tuple[types.ModuleType, ...]:
    """Every module of a model of transformers that is imported; the same tuple until there are others."""
    return _imported_models(len(sys.modules), next(reversed(sys.modules)))


@functools.lru_cache(maxsize=1)
def _imported_models(count: int, last: str) -> tuple[types.ModuleType, ...]:
    names = sorted(name for name in sys.modules if name.startswith("transformers.models."))
    return tuple(module for name in names if isinstance(module := sys.modules[name], types.ModuleType))


Action = Callable[["Changes", types.ModuleType], Any]


def for_later_modules(
    changes: Changes,
    package: str,
    act: Action,
    then: Callable[[LaterChanges, types.ModuleType], None] = lambda later, module: None,
) -> None:
    """Runs `act(changes, module)` for each module of the package that is imported before these changes are undone.

    `then` is called behind it. What another thread imports is left alone: patches change the whole process.
    """
    later = changes.later()

    def imported(module: types.ModuleType) -> None:
        if later.is_here:
            later.run(lambda changes: act(changes, module))
            then(later, module)

    waiting = Waiting(lambda name: name.startswith(f"{package}."), imported)
    changes.call(waiting.start, waiting.stop, f"modules of {package} that come later")
