"""A decoder that continues a text: new tokens, the mask over all that are seen, and the cache of the past ones."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from ...cache_names import cache_argument, cache_in
from ...emptied_caches import emptied, keeps_tokens
from .search import Calls, Search
from .tensors import Sizes, mask, tokens

_positions_are_taken: Search[bool] = Search()


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`seq` new tokens after `past` cached ones, and their positions; the first row starts with `padded` tokens.

    That is one where it is not said, behind a past or among new tokens behind none.
    """
    batch, seq, past = sizes["batch"], sizes["seq"], sizes["past"]
    padded = sizes.get("padded", 1 if past > 1 or (past == 0 and seq > 1) else 0)
    cache = _past(model, batch, past, min(padded, (past or 2) - 1))
    seen = past if any(keeps_tokens(value) for value in cache.values()) else 0
    inputs = {
        "input_ids": tokens(model, (batch, seq)),
        "attention_mask": mask(model, batch, seen + seq, padded if seen or not past else 0),
        **cache,
    }
    positions = {"position_ids": _positions(inputs["attention_mask"], seq)}
    return {**inputs, **positions} if _takes_positions(model, {**inputs, **positions}) else inputs


def _positions(attention_mask: torch.Tensor, count: int) -> torch.Tensor:
    """Those of the last `count` tokens as `generate` passes them: a padded token has none, and does not count."""
    positions = attention_mask.cumsum(-1) - 1
    return positions.masked_fill(attention_mask == 0, 0)[:, attention_mask.shape[1] - count :].contiguous()


def _takes_positions(model: Any, inputs: dict[str, Any]) -> bool:
    """Whether the model takes one position for each token; some have several."""

    def candidates() -> Iterator[tuple[bool, Calls]]:
        if "position_ids" in inspect.signature(model.forward).parameters:
            yield True, [copy.deepcopy(inputs)]  # the cache grows

    return _positions_are_taken(model, candidates) is not None


def _past(model: Any, batch: int, past: int, padded: int) -> dict[str, Any]:
    """The cache that the model itself leaves behind after `past` tokens, under the name it goes by; {} if it has none.

    A single token has no past to look back on: two are run for an empty one, and then forgotten.
    """
    ids = tokens(model, (batch, past or 2))
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=mask(model, batch, ids.shape[1], padded), use_cache=True)
    name, cache = cache_argument(model.forward), cache_in(model, outputs)
    if name is None or cache is None:
        return {}
    return {name: cache if past else emptied(cache)}
