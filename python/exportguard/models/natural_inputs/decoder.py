"""A decoder that continues a text: new tokens, the mask over all that are seen, and the cache of the past ones."""

from __future__ import annotations

from typing import Any

import torch

from ...emptied_caches import emptied, keeps_tokens
from .tensors import Sizes, mask, tokens

_CACHE_NAMES = ("past_key_values", "cache_params")


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`seq` new tokens after `past` cached ones; the first row starts with a padded token."""
    batch, seq, past = sizes["batch"], sizes["seq"], sizes["past"]
    padded = 1 if past > 1 else 0
    cache = _past(model, batch, past, padded)
    seen = past if any(keeps_tokens(value) for value in cache.values()) else 0
    return {
        "input_ids": tokens(model, (batch, seq)),
        "attention_mask": mask(model, batch, seen + seq, padded if seen else 0),
        **cache,
    }


def _past(model: Any, batch: int, past: int, padded: int) -> dict[str, Any]:
    """The cache that the model itself leaves behind after `past` tokens, under the name it goes by; {} if it has none.

    A single token has no past to look back on: two are run for an empty one, and then forgotten.
    """
    ids = tokens(model, (batch, max(past, 2)))
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=mask(model, batch, ids.shape[1], padded), use_cache=True)
    name = next((name for name in _CACHE_NAMES if outputs.get(name) is not None), None)
    if name is None:
        return {}
    return {name: outputs[name] if past else emptied(outputs[name])}
