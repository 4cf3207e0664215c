"""Recurrences over the tokens, as many of them as there are when the program runs."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.export import Dim
from transformers import FalconMambaConfig, JambaConfig, PretrainedConfig, ZambaConfig

from exportguard import torch_export_patches

FALCON_MAMBA = FalconMambaConfig(
    hidden_size=8, num_hidden_layers=1, vocab_size=20, state_size=4, intermediate_size=16
)  # fmt: skip
JAMBA = JambaConfig(
    hidden_size=16, num_hidden_layers=1, vocab_size=20, intermediate_size=16, num_attention_heads=2,
    num_key_value_heads=2, mamba_d_state=4, mamba_dt_rank=4, num_experts=1, attn_layer_offset=1, attn_layer_period=2,
    use_mamba_kernels=False,
)  # fmt: skip
ZAMBA = ZambaConfig(
    hidden_size=16, num_hidden_layers=1, layers_block_type=["linear_attention"], vocab_size=20, intermediate_size=16,
    num_attention_heads=2, num_key_value_heads=2, mamba_d_state=4, mamba_dt_rank=4, n_mamba_heads=2,
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


class BoundedScan(torch.nn.Module):
    """The scan of mamba2 with steps of 1 and more, behind a state."""

    def __init__(self) -> None:
        super().__init__()
        self.models = importlib.import_module("transformers.models.zamba2.modeling_zamba2")
        self.rates = torch.nn.Parameter(-torch.rand(2))

    def forward(
        self, x: torch.Tensor, dt: torch.Tensor, write: torch.Tensor, read: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        limits = {"dt_softplus": True, "dt_limit": (1.0, float("inf")), "return_final_states": True}
        found: tuple[torch.Tensor, torch.Tensor] = self.models.mamba2_chunk_scan(
            x, dt, self.rates, write, read, chunk_size=4, initial_states=state, **limits
        )
        return found

    def one_step(
        self, x: torch.Tensor, dt: torch.Tensor, write: torch.Tensor, read: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the models do for a single token behind a state, which they change."""
        steps = dt.transpose(1, 2).expand(-1, -1, x.shape[-1])
        rates = self.rates[:, None, None].expand(-1, x.shape[-1], state.shape[-1])
        output = self.models.mamba2_selective_state_update(
            state, x[:, 0], steps, rates, write[:, 0], read[:, 0], dt_softplus=True
        )
        return output[:, None], state


def scan_inputs(length: int) -> tuple[torch.Tensor, ...]:
    shapes = [(2, length, 2, 3), (2, length, 2), (2, length, 1, 4), (2, length, 1, 4), (2, 2, 3, 4)]
    return tuple(torch.randn(shape, generator=torch.Generator().manual_seed(length)) for shape in shapes)


def bounds_the_steps_of_several_tokens_alone() -> None:
    torch.manual_seed(0)
    model = BoundedScan().eval()
    if not hasattr(model.models, "mamba2_chunk_scan"):
        pytest.skip("transformers 4 has this scan within the layer")
    axes = ({1: Dim.DYNAMIC},) * 4 + (None,)
    with torch_export_patches(), torch.no_grad():
        program = torch.export.export(model, scan_inputs(6), dynamic_shapes=axes, strict=False)
    run = program.module(check_guards=False)  # they say that there are several chunks
    with torch.no_grad():
        for length in (6, 9, 3):
            torch.testing.assert_close(run(*scan_inputs(length)), model(*scan_inputs(length)))
        torch.testing.assert_close(run(*scan_inputs(1)), model.one_step(*scan_inputs(1)))


PROGRAMS = {
    "bounds of time steps": bounds_the_steps_of_several_tokens_alone,
    "selective scan of zamba": lambda: is_right_for_any_number_of_tokens(ZAMBA, "ZambaForCausalLM"),
    "selective scan of falcon_mamba": lambda: is_right_for_any_number_of_tokens(FALCON_MAMBA, "FalconMambaForCausalLM"),
    "selective scan of jamba": lambda: is_right_for_any_number_of_tokens(JAMBA, "JambaForCausalLM"),
}
