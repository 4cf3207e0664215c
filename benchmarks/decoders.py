"""What the benchmarks of decoders call them with: three tokens behind a past of five, each size under its name."""

from __future__ import annotations

from typing import Any

import torch
import transformers

import exportguard
from exportguard.cache_names import cache_argument


def call_of(model: transformers.PreTrainedModel, mask: str = "past+seq") -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by name for a batch of two, and their dynamic shapes; `mask` names the length of the mask."""
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    states = (2, config.num_key_value_heads, 5, head)
    past = exportguard.make_dynamic_cache(
        [(torch.zeros(states), torch.zeros(states)) for _ in range(config.num_hidden_layers)]
    )
    name_of_cache = cache_argument(model.forward) or ""
    inputs = {
        "input_ids": torch.zeros(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        name_of_cache: past,
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: mask},
        name_of_cache: {0: "batch", 2: "past"},
    }
    return inputs, shapes
