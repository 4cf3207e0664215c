"""The state of an object as JSON data and named leaves.

Tensors and symbolic integers are leaves. Everything else is the object's kind: it is kept in the data and compared.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from exportguard.errors import GuardError

_known_classes: dict[str, type] = {}
_known_configs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def path_of(cls: type) -> str:
    """The class as text; `class_at` finds it again."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    _known_classes[path] = cls
    return path


def class_at(path: str) -> Any:
    """The class of which `path_of` gave the path, in this process or another."""
    if path not in _known_classes:
        module, _, name = path.partition(":")
        found: Any = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        _known_classes[path] = found
    return _known_classes[path]


def is_config(value: object) -> bool:
    """Whether it is the configuration of a model of transformers."""
    module = sys.modules.get("transformers.configuration_utils")
    names = ("PreTrainedConfig", "PretrainedConfig")  # of transformers 5 and 4
    bases = tuple(getattr(module, name) for name in names if hasattr(module, name))
    return isinstance(value, bases)


def _encode_config(config: Any) -> dict[str, Any]:
    text = config.to_json_string(use_diff=False)
    _known_configs[text] = config
    return {"config": [path_of(type(config)), text]}


def _decode_config(path: str, text: str) -> Any:
    """The configuration itself in the process that encoded it, else an equal one."""
    known = _known_configs.get(text)
    return known if known is not None else class_at(path).from_dict(json.loads(text))


def holds_states(cls: type) -> bool:
    """Whether the class is a model's own holder of states: no `Cache` of transformers, but called one."""
    own = cls.__module__.startswith("transformers.models.") and cls.__name__.endswith(("Cache", "CacheLayer"))
    return own and not issubclass(cls, (torch.nn.Module, tuple, *_cache_bases()))


def _cache_bases() -> tuple[type, ...]:
    module = sys.modules.get("transformers.cache_utils")
    names = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


def _is_plain(value: object) -> bool:
    """Whether its attributes are all that it is: a dataclass, or an object that has none."""
    return dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not vars(value))


class _Sizes(tuple[Any, ...]):
    """A `torch.Size` of what is no integer: symbols, or what a tree holds in place of integers."""


def _decode_size(names: list[str], leaves: dict[str, Any]) -> Any:
    sizes = [leaves[name] for name in names]
    return torch.Size(sizes) if all(type(size) is int for size in sizes) else _Sizes(sizes)


def encode(value: object, name: str, leaves: dict[str, Any]) -> Any:
    """`value` as JSON data; its tensors go to `leaves` under names that start with `name`.

    :raises GuardError: for an object of which nothing is known
    """
    if isinstance(value, (torch.Tensor, torch.SymInt)):
        leaves[name] = value
        return {"leaf": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, type):
        return {"class": path_of(value)}
    if isinstance(value, (torch.Size, _Sizes)):  # what a tensor that is packed was before: other inputs have other ones
        leaves.update((f"{name}.{axis}", size) for axis, size in enumerate(value))
        return {"size": [f"{name}.{axis}" for axis in range(len(value))]}
    if isinstance(value, (list, tuple)):
        items = [encode(item, f"{name}.{i}", leaves) for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {"items": [[key, encode(item, f"{name}.{key}", leaves)] for key, item in value.items()]}
    if is_config(value):
        return _encode_config(value)
    if holds_states(type(value)) or _is_plain(value):
        return {"object": [path_of(type(value)), encode_attributes(value, f"{name}.", leaves)]}
    raise GuardError(
        f"{name} is a {type(value).__name__}, which cannot be serialized; register the class that holds it with "
        "exportguard.register_class_serialization"
    )


def decode(data: object, leaves: dict[str, Any]) -> Any:
    """What `encode` was given."""
    if isinstance(data, list):
        return [decode(item, leaves) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "items":
        return {key: decode(item, leaves) for key, item in content}
    return _DECODERS[kind](content, leaves)


#: What a holder of states derives from its tensors: their batch. A program runs with another one.
_BATCHES = ("max_batch_size", "batch_size")
#: Python integers that count tokens: an input of the program like any other integer.
_COUNTERS = ("seqlen_offset", "_seen_tokens")


def _batch_of(state: dict[str, Any]) -> Any:
    leaves = (leaf for leaf in pytree.tree_leaves(state) if hasattr(leaf, "shape") and len(leaf.shape) > 0)
    first = next(leaves, None)
    return None if first is None else first.shape[0]


def encode_attributes(value: object, prefix: str, leaves: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an object as JSON data, its batch left out."""
    data, batches = {}, []
    for attribute, content in vars(value).items():
        name = f"{prefix}{attribute.lstrip('_')}"
        if attribute in _BATCHES:
            batches.append(attribute)
        elif attribute in _COUNTERS and content is not None:  # a number, or what torch.export puts in its place
            leaves[name] = content
            data[attribute] = {"leaf": name}
        else:
            data[attribute] = encode(content, name, leaves)
    return {"data": data, "batches": batches}


def object_of(path: str, attributes: dict[str, Any], leaves: dict[str, Any]) -> Any:
    """The object of which `encode_attributes` gave the attributes. No method of it runs."""
    cls = class_at(path)
    value = cls.__new__(cls)
    state = {name: decode(data, leaves) for name, data in attributes["data"].items()}
    vars(value).update(state)
    if attributes["batches"]:
        vars(value).update(dict.fromkeys(attributes["batches"], _batch_of(state)))
    return value


_DECODERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "leaf": lambda name, leaves: leaves[name],
    "size": _decode_size,
    "dtype": lambda name, _: getattr(torch, name),
    "device": lambda name, _: torch.device(name),
    "class": lambda path, _: class_at(path),
    "object": lambda content, leaves: object_of(content[0], content[1], leaves),
    "config": lambda content, _: _decode_config(*content),
    "tuple": lambda items, leaves: tuple(decode(item, leaves) for item in items),
}
