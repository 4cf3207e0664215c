"""Caches and outputs among the example inputs of a saved program are loaded without arbitrary pickles."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from exportguard.caches.encoding import holds_states
from exportguard.declaration.modules import classes_of, for_later_modules, imported_models, with_subclasses
from exportguard.declaration.patch import NEEDED, Patch, Verdict
from exportguard.declaration.targets import TargetMissingError, resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes

_MODELS = "transformers.models"
#: Whatever derives from these may be part of an example input: caches, their layers, outputs, configurations.
_BASES = {
    "transformers.cache_utils": ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer"),
    "transformers.utils.generic": ("ModelOutput",),
    "transformers.configuration_utils": ("PreTrainedConfig", "PretrainedConfig"),
    "diffusers.utils.outputs": ("BaseOutput",),
}


def _bases() -> tuple[type[Any], ...]:
    modules = {name: sys.modules[name] for name in _BASES if name in sys.modules}
    return tuple(
        getattr(modules[name], base) for name in modules for base in _BASES[name] if hasattr(modules[name], base)
    )


def classes_in_inputs() -> list[Any]:
    """Every class of a cache, a layer, an output or a configuration that exists."""
    derived = [cls for base in _bases() for cls in with_subclasses(base)]
    return [*derived, *(cls for module in imported_models() for cls in classes_of(module) if holds_states(cls))]


def _add(changes: Changes, classes: Iterable[Any]) -> None:
    before = set(torch.serialization.get_safe_globals())
    added = {cls for cls in classes if cls not in before}

    def undo() -> None:
        kept = [entry for entry in torch.serialization.get_safe_globals() if entry not in added]
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(kept)

    changes.call(lambda: torch.serialization.add_safe_globals(list(added)), undo, "torch.serialization safe globals")


def _add_of(changes: Changes, module: types.ModuleType) -> None:
    own = [cls for cls in classes_of(module) if issubclass(cls, _bases()) or holds_states(cls)]
    if own:
        _add(changes, own)


def _apply(changes: Changes) -> None:
    _add(changes, classes_in_inputs())
    for_later_modules(changes, _MODELS, _add_of)


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
        awaits="transformers.cache_utils",
        reason="torch.export.load refuses example inputs that hold a cache, an output or a configuration",
        upstream="https://github.com/pytorch/pytorch/pull/132348",
        probe=_probe,
        apply=_apply,
    ),
)
