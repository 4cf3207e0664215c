"""Rotary embeddings for texts longer than any before."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch.export import Dim
from transformers import LlamaConfig, LlamaForCausalLM

from exportguard import torch_export_patches

ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
CONFIG = LlamaConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16,
    vocab_size=20, max_position_embeddings=8, rope_parameters=ROPE,
)  # fmt: skip


def fresh() -> LlamaForCausalLM:
    """A model that has seen no text; all have the same weights."""
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG).eval()


def has_the_frequencies_of_each_length() -> None:
    if transformers.__version__.startswith("4."):
        pytest.skip("a model of transformers 4 is traced with the frequencies of each length")
    axes = {"input_ids": {1: Dim.DYNAMIC}, "use_cache": None}
    with torch_export_patches(), torch.no_grad():
        inputs = {"input_ids": torch.arange(10)[None] % 19, "use_cache": False}
        program = torch.export.export(fresh(), (), inputs, dynamic_shapes=axes, strict=False)
    for length in (10, 5, 8, 9, 17):
        ids = torch.arange(length)[None] % 19
        with torch.no_grad():
            got = program.module()(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(got, fresh()(input_ids=ids, use_cache=False).logits)


PROGRAMS = {"frequencies that follow the length": has_the_frequencies_of_each_length}
