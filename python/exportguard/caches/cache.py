"""Flattens a cache of transformers: its layers one after the other, and the number of tokens that it has seen.

A sliding-window layer keeps fewer tokens than it has seen, and counts them in a Python integer. The count decides where
the window lies, so it must not become a constant of an exported program. Where another layer of the cache keeps every
token, its length is the count. Otherwise the count is a leaf of its own, "length", an integer like any other input:
give it a dynamic shape (`Dim.DYNAMIC`) as you do for the tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from exportguard.caches.encoding import class_at, decode, encode, path_of
from exportguard.caches.layers import LENGTHS, flatten_layer, unflatten_layer
from exportguard.caches.registration import Serializer, named_serializer

#: Attributes of a cache that are not written: streams belong to a device of this process.
_RECREATED = {"prefetch_stream": lambda: torch.Stream()}


def _counters(layers: list[Any]) -> Iterator[tuple[int, str, Any]]:
    """(layer, attribute, count) for every Python integer that counts tokens, in layers that hold some."""
    for i, layer in enumerate(layers):
        for name in LENGTHS:
            count = vars(layer).get(name)
            if count is not None and not isinstance(count, torch.Tensor):
                yield i, name, count


def _keeps_every_token(layer: object) -> bool:
    if any(name in vars(layer) for name in LENGTHS) or not getattr(layer, "is_initialized", False):
        return False
    keys = getattr(layer, "keys", None)
    return isinstance(keys, torch.Tensor) and keys.dim() == 4


def _length_source(layers: list[Any]) -> int | None:
    """The layer whose keys are as long as the counters say, if there is one."""
    source = next((i for i, layer in enumerate(layers) if _keeps_every_token(layer)), None)
    if source is None:
        return None
    length = layers[source].keys.shape[-2]
    # Only plain integers are compared: comparing symbolic ones would fix them. Those come from this very source.
    plain = [count for _, _, count in _counters(layers) if type(count) is int and type(length) is int]
    return source if all(count == length for count in plain) else None


def _flatten_counters(layers: list[Any], leaves: dict[str, Any]) -> dict[str, Any]:
    counters = list(_counters(layers))
    # A layer that holds nothing has counted nothing; that is part of its kind, as the absence of its tensors is.
    empty = [[i, name] for i, name, count in counters if not layers[i].is_initialized]
    counters = [(i, name, count) for i, name, count in counters if layers[i].is_initialized]
    names = [[i, name] for i, name, _ in counters]
    if not counters:
        return {"empty": empty}
    source = _length_source(layers)
    if source is not None:
        return {"empty": empty, "as long as layer": source, "counters": names}
    if len({count for _, _, count in counters if type(count) is int}) <= 1:
        leaves["length"] = counters[0][2]
        return {"empty": empty, "leaf": "length", "counters": names}
    leaves.update((f"{i}.length" if name == LENGTHS[0] else f"{i}.{name}", count) for i, name, count in counters)
    return {
        "empty": empty,
        "leaves": [f"{i}.length" if name == LENGTHS[0] else f"{i}.{name}" for i, name in names],
        "counters": names,
    }


def _counts(context: dict[str, Any], layers: list[Any], leaves: dict[str, Any]) -> list[Any]:
    if "as long as layer" in context:
        keys = layers[context["as long as layer"]].keys
        # Trees may hold anything in place of tensors, for instance the specifications of their shapes.
        count = keys.shape[-2] if hasattr(keys, "shape") else None
        return [count] * len(context["counters"])
    if "leaf" in context:
        return [leaves[context["leaf"]]] * len(context["counters"])
    return [leaves[name] for name in context.get("leaves", [])]


def _restore_counters(context: dict[str, Any], layers: list[Any], leaves: dict[str, Any]) -> None:
    for i, name in context["empty"]:
        setattr(layers[i], name, 0)
    counts = _counts(context, layers, leaves)
    for (i, name), count in zip(context.get("counters", []), counts, strict=True):
        setattr(layers[i], name, count)


def flatten(cache: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a `Cache` by name ("0.key", "0.value", "1.key", …), and what is needed to make it again."""
    leaves: dict[str, Any] = {}
    layers = [flatten_layer(layer, str(i), leaves) for i, layer in enumerate(cache.layers)]
    counters = _flatten_counters(cache.layers, leaves)
    others = {name: value for name, value in vars(cache).items() if name != "layers" and name not in _RECREATED}
    state = {name: encode(value, name, leaves) for name, value in others.items()}
    recreated = [name for name in vars(cache) if name in _RECREATED]
    context = {
        "class": path_of(type(cache)),
        "layers": layers,
        "counters": counters,
        "state": state,
        "recreated": recreated,
        "leaves": list(leaves),
    }
    return leaves, context


def unflatten(leaves: Iterable[Any], context: dict[str, Any]) -> Any:
    """The cache that `flatten` was given, with these leaves. No method of it runs, so nothing is computed."""
    named = dict(zip(context["leaves"], leaves, strict=True))
    cls = class_at(context["class"])
    cache = cls.__new__(cls)
    layers = [unflatten_layer(layer, named) for layer in context["layers"]]
    _restore_counters(context["counters"], layers, named)
    cache.layers = layers
    vars(cache).update((name, decode(value, named)) for name, value in context["state"].items())
    vars(cache).update((name, _RECREATED[name]()) for name in context["recreated"])
    return cache


@functools.cache
def cache_serializer() -> Serializer:
    """The serializer of every class that is a list of layers."""
    return named_serializer(flatten, unflatten)
