"""Lengths of layers with a sliding window: they are as long as the past only up to their window."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

#: The axis of the tokens of keys and values, `[batch, heads, tokens, width]`.
TOKENS = 2


@dataclass(frozen=True)
class SlidingLength:
    """What an axis is as long as, up to so many tokens: `name` is what the user calls it, `own` its name by itself."""

    name: str
    own: str
    most: int


def windows(arguments: Mapping[str, Any]) -> dict[str, int]:
    """How many tokens a layer of a cache keeps at most, by the path of its leaves: `{"cache.0": 5}`; others are not
    there.

    transformers 4.57 to 5.24 keep one token less than the window, and all of them if that is none.
    """
    found = (pair for name, value in arguments.items() for pair in _layers(name, value))
    return {path: window - 1 for path, layer in found if (window := _window(layer)) > 1}


def _layers(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _layers(f"{path}.{name}", part)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _layers(f"{path}.{number}", part)
    elif hasattr(value, "self_attention_cache"):
        yield from _layers(f"{path}.self", value.self_attention_cache)
    else:
        layers = getattr(value, "layers", None)
        found = layers if isinstance(layers, list) else []
        yield from ((f"{path}.{number}", layer) for number, layer in enumerate(found))


def _window(layer: object) -> int:
    window = getattr(layer, "sliding_window", None)
    is_filled = isinstance(getattr(layer, "keys", None), torch.Tensor)
    return window if is_filled and isinstance(window, int) else 0


def kept_tokens(places: Iterable[tuple[str, int]], windows: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """The most tokens of those axes, by the leaf and the number of the axis, that count the tokens of such layers."""
    return {place: most for place in places if (most := windows.get(_layer_of(place)))}


def own_lengths(
    labels: Mapping[tuple[str, int], str], windows: Mapping[str, int]
) -> dict[tuple[str, int], SlidingLength]:
    """The axes of sliding layers that go by the name of what is longer, each with a name of its own.

    `labels` are the names of axes, by the leaf and the number of the axis. A name is that of something longer where
    an axis outside of such layers has it as well, or is a sum of it, as a mask is of `past+seq`.

    >>> labels = {("cache.0.key", 2): "past", ("cache.1.key", 2): "past", ("cache.0.key", 0): "batch"}
    >>> own_lengths(labels, {"cache.0": 5})
    {('cache.0.key', 2): SlidingLength(name='past', own='past_bounded', most=5)}
    """
    sliding = kept_tokens(labels, windows)
    longer = {name for place, label in labels.items() if place not in sliding for name in (label, *_parts(label))}
    shared = {place: (labels[place], most) for place, most in sliding.items() if labels[place] in longer}
    taken = set(labels.values())
    own: dict[tuple[str, int], str] = {}
    for key in dict.fromkeys(shared.values()):
        own[key] = _name_of(key[0], taken)
        taken.add(own[key])
    return {place: SlidingLength(key[0], own[key], key[1]) for place, key in shared.items()}


def _layer_of(place: tuple[str, int]) -> str:
    """The layer whose tokens an axis counts; nothing if it does not."""
    leaf, axis = place
    layer, _, kind = leaf.rpartition(".")
    return layer if axis == TOKENS and kind in ("key", "value") else ""


def _parts(label: str) -> list[str]:
    return [part.strip() for part in label.split("+")]


def _name_of(name: str, taken: Collection[str]) -> str:
    numbers = itertools.chain([""], (f"_{number}" for number in itertools.count(2)))
    return next(own for number in numbers if (own := f"{name}_bounded{number}") not in taken)
