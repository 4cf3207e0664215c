"""Caches of past tokens as a model's own inputs: cut back to nothing, whatever their class."""

from __future__ import annotations

from typing import Any

import torch

#: The axis of the tokens, counted from the last.
_BY_TOKEN = {"keys": -2, "values": -2, "indexer_keys": -2, "indexer_position_ids": -1}


def keeps_tokens(cache: object) -> bool:
    """Whether something of every past token is kept, rather than one state for all of them."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    return any(isinstance(getattr(layer, "keys", None), torch.Tensor) for layer in layers)


def keeps_only_tokens(cache: object) -> bool:
    """Whether it is a cache that keeps something of every past token, and nothing else."""
    layers = getattr(cache, "layers", None)
    if not isinstance(layers, list) or not layers:
        return False
    return all(isinstance(getattr(layer, "keys", None), torch.Tensor) and not _states(layer) for layer in layers)


def _states(layer: object) -> list[str]:
    return [name for name in ("conv_states", "recurrent_states") if getattr(layer, name, None)]


def emptied(cache: Any) -> Any:
    """`cache` as it is before the first token: no keys and values, states of zeros. Changes it and returns it.

    What a decoder keeps of its encoder stays: that is computed before the first token.
    """
    own = getattr(cache, "self_attention_cache", cache)
    for layer in own.layers:
        _empty_layer(layer)
    return cache


def _empty_layer(layer: Any) -> None:
    for name, axis in _BY_TOKEN.items():
        tensor = getattr(layer, name, None)
        if isinstance(tensor, torch.Tensor):
            setattr(layer, name, tensor.narrow(axis, 0, 0))
    if isinstance(getattr(layer, "cumulative_length", None), int):
        layer.cumulative_length = 0
    for name in ("conv_states", "recurrent_states"):
        states = getattr(layer, name, None)
        if isinstance(states, dict):
            setattr(layer, name, {key: _zeros(state) for key, state in states.items()})


def _zeros(state: torch.Tensor | None) -> torch.Tensor | None:
    return None if state is None else torch.zeros_like(state)
