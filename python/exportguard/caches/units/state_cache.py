"""Caches that a model of transformers defines for itself: states of recurrences and convolutions, no `Cache`.

They have no common base and no common form. What they hold is found out from their attributes: see `encoding.py`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from exportguard.caches.encoding import encode_attributes, holds_states, object_of, path_of
from exportguard.caches.registration import named_serializer
from exportguard.caches.subclasses import register_each
from exportguard.declaration.modules import classes_of, for_later_modules, imported_models
from exportguard.declaration.patch import Patch

if TYPE_CHECKING:
    from exportguard._core import Changes

_MODELS = "transformers.models"


def flatten(cache: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors that the object holds by name ("conv_states.0", …), and what is needed to make it again."""
    leaves: dict[str, Any] = {}
    attributes = encode_attributes(cache, "", leaves)
    return leaves, {"class": path_of(type(cache)), "attributes": attributes, "leaves": list(leaves)}


def unflatten(leaves: Iterable[Any], context: dict[str, Any]) -> Any:
    """The object that `flatten` was given, with these leaves."""
    named = dict(zip(context["leaves"], leaves, strict=True))
    return object_of(context["class"], context["attributes"], named)


_SERIALIZER = named_serializer(flatten, unflatten)


def _register_states(changes: Changes, module: types.ModuleType) -> None:
    register_each(changes, filter(holds_states, classes_of(module)), _SERIALIZER)


def _apply(changes: Changes) -> None:
    for module in imported_models():
        _register_states(changes, module)
    for_later_modules(changes, _MODELS, _register_states)


PATCHES = (
    Patch(
        name="serializer of the caches of models",
        kind="serializer",
        target=_MODELS,
        awaits="transformers.cache_utils",
        reason="torch.export must see the states that a model keeps in a class of its own as inputs and outputs",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
        apply=_apply,
    ),
)
