"""The serializer of a cache class is the serializer of its subclasses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from exportguard.caches.registration import Serializer, is_kept, register
from exportguard.patches.declaration import NEEDED, Patch, Verdict, resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes


def _with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _with_subclasses(subclass)


def _found(path: str) -> Verdict:
    resolve_object(path)
    return NEEDED


def serializer_patch(path: str, serializer: Serializer, reason: str) -> Patch:
    """The patch that registers the class at `path` and every subclass that exists when the guard opens.

    A class that the user registered with `register_class_serialization` keeps that serializer.
    """

    def apply(changes: Changes) -> None:
        for cls in _with_subclasses(resolve_object(path)):
            if not is_kept(cls):
                register(changes, cls, serializer)

    return Patch(
        name=f"serializer of {path.rpartition('.')[2]}",
        kind="serializer",
        target=path,
        reason=reason,
        probe=lambda: _found(path),
        apply=apply,
    )
