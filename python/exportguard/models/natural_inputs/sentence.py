"""Texts for a model of sentences: padded in front, padded behind, and whole."""

from __future__ import annotations

from typing import Any

import torch

from . import text
from .tensors import Sizes


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """What the model itself takes, and the mask in any case; the second row ends with a token of padding, the first
    one begins with it."""
    inputs = text.make_inputs(model.model, sizes)
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(ids)).clone()
    if ids.shape[1] > 1:
        mask[:1, 0] = 0
        mask[1:2, -1] = 0
    kinds = {name: value for name, value in inputs.items() if name == "token_type_ids"}
    return {"input_ids": ids, "attention_mask": mask, **kinds}
