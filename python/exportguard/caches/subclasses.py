"""The serializer of a cache class is the serializer of its subclasses."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from exportguard import _core
from exportguard.caches.registration import Serializer, is_kept, register
from exportguard.patches.declaration import NEEDED, Patch, Verdict, resolve_object
from exportguard.patches.imports import Waiting, module_of

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


def register_each(changes: Changes, classes: Iterable[type[Any]], serializer: Serializer) -> None:
    """Registers the classes, but for those that the user registered with `register_class_serialization`."""
    for cls in classes:
        if not is_kept(cls):
            register(changes, cls, serializer)


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


def _found(path: str) -> Verdict:
    resolve_object(path)
    return NEEDED


def serializer_patch(path: str, serializer: Serializer, reason: str, upstream: str = "") -> Patch:
    """The patch that registers the class at `path` and every subclass, also those of models that come later.

    A class that the user registered with `register_class_serialization` keeps that serializer.
    """
    name = f"serializer of {path.rpartition('.')[2]}"

    def apply(changes: Changes) -> None:
        base = resolve_object(path)
        register_each(changes, with_subclasses(base), serializer)
        for_later_modules(changes, "transformers.models", later)

    def later(changes: Changes, module: types.ModuleType) -> None:
        base = resolve_object(path)
        register_each(changes, (cls for cls in classes_of(module) if issubclass(cls, base)), serializer)

    return Patch(
        name=name,
        kind="serializer",
        target=path,
        awaits=module_of(path),
        reason=reason,
        upstream=upstream,
        probe=lambda: _found(path),
        apply=apply,
    )
