"""A whole text for an encoder or a classifier."""

from __future__ import annotations

import inspect
from typing import Any

from .tensors import Sizes, mask, text_config, tokens


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`seq` tokens and their mask; the first row starts with a padded token.

    Classifiers of the Bart family look for the token that ends a text, so an encoder-decoder gets one.
    """
    batch, seq = sizes["batch"], sizes["seq"]
    ids = tokens(model, (batch, seq))
    end = getattr(text_config(model), "eos_token_id", None)
    if model.config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        return {"input_ids": ids}
    return {"input_ids": ids, "attention_mask": mask(model, batch, seq, padded=1 if seq > 1 else 0)}
