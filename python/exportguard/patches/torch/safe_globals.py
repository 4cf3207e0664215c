"""Caches among the example inputs of a saved program are loaded without arbitrary pickles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from exportguard.patches.declaration import NEEDED, Patch, TargetMissingError, Verdict, resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes

_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")


def _with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _with_subclasses(subclass)


def cache_classes() -> list[Any]:
    """Every cache and cache layer that exists, of those that the installed transformers has."""
    module = resolve_object("transformers.cache_utils")
    bases = [getattr(module, name) for name in _BASES if hasattr(module, name)]
    return [cls for base in bases for cls in _with_subclasses(base)]


def _apply(changes: Changes) -> None:
    before = torch.serialization.get_safe_globals()
    added = [cls for cls in cache_classes() if cls not in before]

    def undo() -> None:
        kept = [entry for entry in torch.serialization.get_safe_globals() if entry not in added]
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(kept)

    changes.call(lambda: torch.serialization.add_safe_globals(added), undo, "torch.serialization safe globals")


def _probe() -> Verdict:
    if not hasattr(torch.serialization, "add_safe_globals"):
        raise TargetMissingError("torch.serialization has no safe globals")
    resolve_object("transformers.cache_utils")
    return NEEDED


PATCHES = (
    Patch(
        name="caches in loaded programs",
        kind="serializer",
        target="torch.serialization.add_safe_globals",
        reason="torch.export.load falls back to unrestricted pickles for example inputs that hold a cache",
        probe=_probe,
        apply=_apply,
    ),
)
