"""An encoder over a source text and a decoder that continues the target, with both caches."""

from __future__ import annotations

from typing import Any

import torch

from ...cache_names import PAST, cache_argument, cache_in
from ...emptied_caches import emptied
from . import decoder
from .tensors import Sizes, mask, seen_by_all, tokens


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """A source of `source` tokens, `seq` new target tokens after `past` cached ones.

    A model without an encoder of texts, such as one that puts a recording before its prompt, continues a text.
    """
    if not model.config.is_encoder_decoder:
        return decoder.make_inputs(model, sizes)
    batch, source, seq = sizes["batch"], sizes["source"], sizes["seq"]
    ids = tokens(model, (batch, source))
    encoded = {"input_ids": ids, "attention_mask": mask(model, batch, source), **seen_by_all(model, ids)}
    return {
        **encoded,
        "decoder_input_ids": tokens(model, (batch, seq)),
        **decoder_past(model, encoded, batch, sizes["past"]),
    }


def decoder_past(model: Any, encoded: dict[str, Any], batch: int, past: int) -> dict[str, Any]:
    """The cache that the decoder leaves behind after `past` tokens over what the encoder got, under its name."""
    ids = tokens(model, (batch, past or 2))
    with torch.no_grad():
        # What the configuration says comes first: some models hand the argument on to their encoder, which refuses it.
        cache = cache_in(model, model(**encoded, decoder_input_ids=ids))
        if cache is None:
            cache = cache_in(model, model(**encoded, decoder_input_ids=ids, use_cache=True))
    return {cache_argument(model.forward) or PAST: cache if past else emptied(cache)}
