"""`EncoderDecoderCache`: one cache for the decoder's own past, one for what it reads of the encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from exportguard.caches.encoding import class_at, decode, encode, path_of
from exportguard.caches.registration import named_serializer
from exportguard.caches.subclasses import serializer_patch

_PARTS = {"self": "self_attention_cache", "cross": "cross_attention_cache"}


def flatten(cache: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two caches, which are trees themselves, and for which layers the encoder's part is filled.

    They are "self" and "cross", so that a leaf is named `past_key_values.self.0.key`.
    """
    others = {name: value for name, value in vars(cache).items() if name not in _PARTS.values()}
    leaves: dict[str, Any] = {}
    state = {name: encode(value, name, leaves) for name, value in others.items()}
    context = {"class": path_of(type(cache)), "state": state, "leaves": [*_PARTS, *leaves]}
    return {**{part: getattr(cache, name) for part, name in _PARTS.items()}, **leaves}, context


def unflatten(leaves: Iterable[Any], context: dict[str, Any]) -> Any:
    """The cache that `flatten` was given, with these parts."""
    parts = list(leaves)
    cls = class_at(context["class"])
    cache = cls.__new__(cls)
    named = dict(zip(context["leaves"], parts, strict=True))
    vars(cache).update(zip(_PARTS.values(), parts, strict=False))
    vars(cache).update((name, decode(value, named)) for name, value in context["state"].items())
    return cache


PATCHES = (
    serializer_patch(
        "transformers.cache_utils.EncoderDecoderCache",
        named_serializer(flatten, unflatten),
        "torch.export must see the tensors of both caches as inputs and outputs",
        upstream="https://github.com/huggingface/transformers/pull/36311",
    ),
)
