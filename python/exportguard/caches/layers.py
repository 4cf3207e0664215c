"""One layer of a cache as named leaves and plain data, whatever kind of layer it is.

A layer's attributes are of four sorts. Tensors are leaves. What follows from the tensors (their dtype, device and
sizes) is neither kept nor compared, so that a program runs with another batch or length. What a layer counts in a
Python integer is the cache's business (see `cache.py`). All else is its kind: it is kept in the context and compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from exportguard.caches.encoding import class_at, decode, encode, path_of

#: What the leaves of the commonest attributes are called.
_LEAF_NAMES = {
    "keys": "key",
    "values": "value",
    "_quantized_keys": "quantized_key",
    "_quantized_values": "quantized_value",
}

#: Python integers that count tokens.
LENGTHS = ("cumulative_length", "cumulative_length_int")


def _tensors_of(value: object) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for item in value:
            yield from _tensors_of(item)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield value


def _size(attribute: str, axis: int) -> Callable[[dict[str, Any]], Any]:
    def size(state: dict[str, Any]) -> Any:
        return next((tensor.shape[axis] for tensor in _tensors_of(state.get(attribute))), None)

    return size


def _of(what: str, *attributes: str) -> Callable[[dict[str, Any]], Any]:
    """`what` of the first tensor that one of the attributes holds."""

    def get(state: dict[str, Any]) -> Any:
        for attribute in attributes:
            value = state.get(attribute)
            if isinstance(value, torch.Tensor):
                return getattr(value, what)
            for tensor in _tensors_of(value):
                return getattr(tensor, what)
        return None

    return get


def _entries(state: dict[str, Any]) -> dict[str, Any]:
    """How many compressed entries there are under each name."""
    tensors = state["compressed_kv"].items()
    return {name: tensor.shape[1] if hasattr(tensor, "shape") else 0 for name, tensor in tensors}


#: Attributes that follow from the tensors of the layer.
_FOLLOWING: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dtype": _of("dtype", "keys", "conv_states", "recurrent_states"),
    "device": _of("device", "keys", "conv_states", "recurrent_states"),
    "indexer_dtype": _of("dtype", "indexer_keys"),
    "indexer_device": _of("device", "indexer_keys"),
    "batch_size": _size("keys", 0),
    "max_batch_size": _size("keys", 0),
    "num_heads": _size("keys", 1),
    "head_dim": _size("keys", -1),
    "k_head_dim": _size("keys", -1),
    "v_head_dim": _size("values", -1),
    "entry_count": _entries,
}


@functools.cache
def _window_tensor(window: int) -> torch.Tensor:
    # Made outside of tracing: a tensor that is made while tracing becomes a constant of the program.
    with _disable_current_modes():
        return torch.tensor(window, dtype=torch.long)


#: Attributes that follow from the plain data of the layer.
_FROM_DATA: dict[str, Callable[[dict[str, Any]], Any]] = {
    "_sliding_window_tensor": lambda state: _window_tensor(state["sliding_window"]),
}


def _leaf_name(attribute: str) -> str:
    return _LEAF_NAMES.get(attribute, attribute.lstrip("_"))


def flatten_layer(layer: object, prefix: str, leaves: dict[str, Any]) -> dict[str, Any]:
    """The context of `layer`; its tensors go to `leaves`, named "<prefix>.key", "<prefix>.value", …"""
    data: dict[str, Any] = {}
    following, absent, derived = list[str](), list[str](), list[str]()
    for name, value in vars(layer).items():
        if name in _FOLLOWING:
            # dtype and device are unset (None) before the first tensors come, and the layer asks for that.
            (absent if value is None else following).append(name)
        elif name in _FROM_DATA:
            derived.append(name)
        elif name not in LENGTHS or isinstance(value, torch.Tensor):
            data[name] = encode(value, f"{prefix}.{_leaf_name(name)}", leaves)
    return {
        "class": path_of(type(layer)),
        "data": data,
        "following": sorted(following),
        "absent": sorted(absent),
        "derived": sorted(derived),
    }


def unflatten_layer(context: dict[str, Any], leaves: dict[str, Any]) -> Any:
    """The layer of which `flatten_layer` gave the context. No method of the layer runs."""
    cls = class_at(context["class"])
    layer = cls.__new__(cls)
    state = {name: decode(value, leaves) for name, value in context["data"].items()}
    state.update([(name, _FOLLOWING[name](state)) for name in context["following"]])
    state.update(dict.fromkeys(context["absent"]))
    state.update((name, _FROM_DATA[name](state)) for name in context["derived"])
    vars(layer).update(state)
    return layer
