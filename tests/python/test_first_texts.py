"""Linear attention over a first text, which has no state: by tokens, where the model goes by blocks."""

from __future__ import annotations

import torch
from transformers import MiniMaxConfig, MiniMaxModel

from exportguard import validate_module

CONFIG = MiniMaxConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=16,
    vocab_size=20, num_local_experts=2, layer_types=["linear_attention"], block_size=4, use_cache=False,
)  # fmt: skip


def test_blocks_of_linear_attention_are_right_for_any_number_of_tokens() -> None:
    torch.manual_seed(0)
    model = MiniMaxModel(CONFIG).eval()
    inputs = {"input_ids": torch.arange(12).view(2, 6), "use_cache": False}
    report = validate_module(model, inputs, {"input_ids": {0: "batch", 1: "seq"}, "use_cache": None})
    assert report.ok, report
    assert {1, 6} < {one.sizes["seq"] for one in report.sets}
