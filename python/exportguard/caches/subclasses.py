"""The serializer of a cache class is the serializer of its subclasses."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from exportguard.caches.registration import Serializer, is_kept, register
from exportguard.declaration.imports import module_of
from exportguard.declaration.modules import classes_of, for_later_modules, with_subclasses
from exportguard.declaration.patch import NEEDED, Patch, Verdict
from exportguard.declaration.targets import resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes


def register_each(changes: Changes, classes: Iterable[type[Any]], serializer: Serializer) -> None:
    """Registers the classes, but for those that the user registered with `register_class_serialization`."""
    for cls in classes:
        if not is_kept(cls):
            register(changes, cls, serializer)


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
