"""A whole text for an encoder or a classifier."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .tensors import Sizes, mask, seen_by_all, text_config, tokens


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`seq` tokens, their mask, and for a model of sentence pairs which of the two each belongs to.

    The first row starts with a padded token. Classifiers of the Bart family look for the token that ends a text, so an
    encoder-decoder gets one. Where a mask names the tokens that all attend to, they are as many as the row's number.
    """
    batch, seq = sizes["batch"], sizes["seq"]
    ids = tokens(model, (batch, seq))
    end = getattr(text_config(model), "eos_token_id", None)
    if model.config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end
    inputs = {"input_ids": ids, "attention_mask": mask(model, batch, seq, padded=1 if seq > 1 else 0)}
    if (getattr(text_config(model), "type_vocab_size", None) or 0) > 1:
        inputs["token_type_ids"] = sentences(ids)
    names = inspect.signature(model.forward).parameters
    inputs |= seen_by_all(model, ids)
    return {name: value for name, value in inputs.items() if name in {"input_ids", *names}}


def sentences(ids: torch.Tensor) -> torch.Tensor:
    """Zeros for the first half of each text, ones for the second, as a tokenizer tells two sentences apart."""
    kinds = torch.zeros_like(ids)
    kinds[..., (ids.shape[-1] + 1) // 2 :] = 1
    return kinds
