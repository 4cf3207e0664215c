"""Recurrences over the tokens, as many of them as there are when the program runs."""

from __future__ import annotations

import importlib

import torch
from torch.export import Dim
from transformers import FalconMambaConfig, JambaConfig, PretrainedConfig

from exportguard import torch_export_patches

FALCON_MAMBA = FalconMambaConfig(
    hidden_size=8, num_hidden_layers=1, vocab_size=20, state_size=4, intermediate_size=16
)  # fmt: skip
JAMBA = JambaConfig(
    hidden_size=16, num_hidden_layers=1, vocab_size=20, intermediate_size=16, num_attention_heads=2,
    num_key_value_heads=2, mamba_d_state=4, mamba_dt_rank=4, num_experts=1, attn_layer_offset=1, attn_layer_period=2,
    use_mamba_kernels=False,
)  # fmt: skip


def is_right_for_any_number_of_tokens(config: PretrainedConfig, name: str) -> None:
    torch.manual_seed(0)
    family = config.model_type
    model = getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), name)(config).eval()
    shapes = {"input_ids": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "use_cache": None}
    with torch_export_patches(), torch.no_grad():
        inputs = {"input_ids": torch.randint(0, 20, (2, 5)), "use_cache": False}
        program = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False).module()
        for batch, length in [(2, 5), (3, 9), (4, 2)]:
            tokens = torch.randint(0, 20, (batch, length))
            expected = model(tokens, use_cache=False).logits
            got = program(input_ids=tokens, use_cache=False).logits
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


PROGRAMS = {
    "selective scan of falcon_mamba": lambda: is_right_for_any_number_of_tokens(FALCON_MAMBA, "FalconMambaForCausalLM"),
    "selective scan of jamba": lambda: is_right_for_any_number_of_tokens(JAMBA, "JambaForCausalLM"),
}
