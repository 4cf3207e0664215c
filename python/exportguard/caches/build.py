"""Builds caches from tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from exportguard.arguments import require_count, require_kind, wrong
from exportguard.errors import InvalidArgumentError
from exportguard.optional import OptionalModule

cache_utils: Any = OptionalModule("transformers.cache_utils")

KeyValues = Sequence[tuple[torch.Tensor, torch.Tensor]]


def _require_pairs(key_values: KeyValues) -> None:
    if not isinstance(key_values, Sequence):
        raise wrong("key_values", key_values, "a list of pairs (key, value)")
    for i, pair in enumerate(key_values):
        if not isinstance(pair, Sequence) or not all(isinstance(states, torch.Tensor) for states in pair):
            raise wrong(f"layer {i} of key_values", pair, "a pair of tensors")
        if len(pair) != 2:
            raise InvalidArgumentError(f"layer {i} of key_values must be a pair (key, value), got {len(pair)} items")
        key, value = pair
        if key.dim() != 4 or value.dim() != 4 or key.shape[:3] != value.shape[:3]:
            raise InvalidArgumentError(
                f"key and value of layer {i} must have shape (batch, heads, length, width) and agree in the first "
                f"three, got {tuple(key.shape)} and {tuple(value.shape)}"
            )


def _fill(layers: Sequence[Any], key_values: KeyValues) -> None:
    for layer, (key, value) in zip(layers, key_values, strict=True):
        layer.update(key, value)


def _layers(layer_types: Sequence[str], makers: Mapping[str, Callable[[], Any]]) -> list[Any]:
    unknown = sorted(set(layer_types) - set(makers))
    if unknown:
        raise InvalidArgumentError(f"layer_types must be of {', '.join(makers)}, got {', '.join(unknown)}")
    return [makers[kind]() for kind in layer_types]


def _required_window(window: int | None) -> int:
    if not isinstance(window, int) or isinstance(window, bool) or window < 2:
        raise InvalidArgumentError(f"window must be 2 or more for layers of sliding attention, got {window!r}")
    return window


def make_dynamic_cache(key_values: KeyValues, *, config: object = None) -> Any:
    """A `DynamicCache` that holds these keys and values, each of shape (batch, heads, length, width).

    With the `config` of a model its layers are of the kinds that the model uses, sliding windows for instance.

    >>> cache = make_dynamic_cache([(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 3, 8))])
    >>> cache.get_seq_length()
    3
    """
    _require_pairs(key_values)
    cache = cache_utils.DynamicCache() if config is None else cache_utils.DynamicCache(config=config)
    for i, (key, value) in enumerate(key_values):
        cache.update(key, value, i)
    return cache


def make_sliding_window_cache(key_values: KeyValues, *, window: int) -> Any:
    """A `DynamicCache` of sliding-window layers: each keeps the last `window - 1` tokens of what it is given.

    >>> cache = make_sliding_window_cache([(torch.zeros(2, 4, 9, 8), torch.zeros(2, 4, 9, 8))], window=6)
    >>> cache.get_seq_length(), tuple(cache.layers[0].keys.shape)
    (9, (2, 4, 5, 8))
    """
    require_count("window", window, 2)
    _require_pairs(key_values)
    cache = cache_utils.DynamicCache()
    cache.layers = [cache_utils.DynamicSlidingWindowLayer(sliding_window=window) for _ in key_values]
    cache.layer_class_to_replicate = None
    _fill(cache.layers, key_values)
    return cache


def make_static_cache(
    key_values: KeyValues, *, max_cache_len: int, window: int | None = None, layer_types: Sequence[str] = ()
) -> Any:
    """A `StaticCache` with room for `max_cache_len` tokens that begins with these keys and values.

    With a `window` its layers, or those that `layer_types` calls "sliding_attention", keep that many tokens.

    >>> cache = make_static_cache([(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 3, 8))], max_cache_len=16)
    >>> int(cache.get_seq_length()), tuple(cache.layers[0].keys.shape)
    (3, (2, 4, 16, 8))
    """
    _require_pairs(key_values)
    require_count("max_cache_len", max_cache_len, 1)
    longest = max((key.shape[2] for key, _ in key_values), default=0)
    if longest > max_cache_len:
        raise InvalidArgumentError(
            f"max_cache_len must be at least the length of the keys, {longest}, got {max_cache_len}"
        )
    cache = cache_utils.StaticCache.__new__(cache_utils.StaticCache)
    default = "full_attention" if window is None else "sliding_attention"
    makers = {
        "full_attention": lambda: cache_utils.StaticLayer(max_cache_len=max_cache_len),
        "sliding_attention": lambda: cache_utils.StaticSlidingWindowLayer(
            max_cache_len=max_cache_len, sliding_window=_required_window(window)
        ),
    }
    layers = _layers(layer_types or [default] * len(key_values), makers)
    cache_utils.Cache.__init__(cache, layers=layers)
    _fill(layers, key_values)
    return cache


def make_encoder_decoder_cache(self_attention_cache: object, cross_attention_cache: object) -> Any:
    """An `EncoderDecoderCache` of two caches: the decoder's own past, and its view of the encoder.

    >>> pair = [(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 3, 8))]
    >>> cache = make_encoder_decoder_cache(make_dynamic_cache(pair), make_dynamic_cache(pair))
    >>> cache.is_updated
    {0: True}
    """
    for name, value in (
        ("self_attention_cache", self_attention_cache),
        ("cross_attention_cache", cross_attention_cache),
    ):
        require_kind(name, value, cache_utils.Cache, "a cache")
    return cache_utils.EncoderDecoderCache(self_attention_cache, cross_attention_cache)


def make_hybrid_cache(key_values: KeyValues, *, layer_types: Sequence[str], window: int) -> Any:
    """A `DynamicCache` whose layers are "full_attention" or "sliding_attention", one for each pair.

    >>> pairs = [(torch.zeros(2, 4, 9, 8), torch.zeros(2, 4, 9, 8))] * 2
    >>> cache = make_hybrid_cache(pairs, layer_types=["sliding_attention", "full_attention"], window=6)
    >>> [layer.keys.shape[2] for layer in cache.layers]
    [5, 9]
    """
    _require_pairs(key_values)
    if isinstance(layer_types, str) or len(layer_types) != len(key_values):
        raise wrong("layer_types", layer_types, f"a list of {len(key_values)} kinds of layers, one for each pair")
    makers = {
        "full_attention": cache_utils.DynamicLayer,
        "sliding_attention": lambda: cache_utils.DynamicSlidingWindowLayer(sliding_window=_required_window(window)),
    }
    cache = cache_utils.DynamicCache()
    cache.layers = _layers(layer_types, makers)
    cache.layer_class_to_replicate = None
    _fill(cache.layers, key_values)
    return cache
