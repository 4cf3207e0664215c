"""Constructs that several families of models have: each in one function of one of them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers import BertConfig, DbrxConfig, EncodecConfig, masking_utils
from transformers.models.bamba import modeling_bamba
from transformers.models.dbrx.modeling_dbrx import DbrxExperts
from transformers.models.encodec.modeling_encodec import EncodecConv1d
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers.models.rwkv import modeling_rwkv

from exportguard import to_onnx, torch_export_patches
from exportguard.runners.onnxruntime import OrtSession
from unchecked import WITHOUT_CHECKS

#: Transformers 4 asks for the positions of the new tokens, transformers 5 for their number.
TAKES_POSITIONS = "cache_position" in inspect.signature(masking_utils.sdpa_mask).parameters
LENGTHS = [(2, 3), (3, 7), (2, 1)]


class Experts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = DbrxConfig(d_model=8, ffn_config={"ffn_hidden_size": 4, "moe_num_experts": 3})
        self.experts = DbrxExperts(config.ffn_config)
        for parameter in self.experts.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> Any:
        return self.experts(x, chosen, weights)


class Recurrence(torch.nn.Module):
    def forward(self, decay: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        output, state = modeling_rwkv.rwkv_linear_attention_cpu(decay, decay, key, value, return_state=True)
        return output, *state


class Mask(torch.nn.Module):
    """Tokens of the same kind see each other."""

    def forward(self, kinds: torch.Tensor) -> Any:
        batch, length = kinds.shape

        def same_kind(b: Any, h: Any, q: Any, k: Any) -> Any:
            return kinds[b, q] == kinds[b, k]

        options = {"mask_function": same_kind, "allow_is_causal_skip": False}
        if TAKES_POSITIONS:
            return masking_utils.sdpa_mask(batch, torch.arange(length), length, **options)
        return masking_utils.sdpa_mask(batch, length, length, use_vmap=True, **options)


def expert_inputs(batch: int, length: int) -> list[torch.Tensor]:
    # The last of the three experts gets no token.
    chosen = torch.randint(0, 2, (batch * length, 1))
    return [torch.randn(batch, length, 8), chosen, torch.rand(batch * length, 1)]


def is_right_on_every_length(model: torch.nn.Module, inputs: Any, shapes: Any, lengths: Any = LENGTHS) -> None:
    torch.manual_seed(0)
    with torch_export_patches(), torch.no_grad():
        example = tuple(inputs(*lengths[0]))
        exported = torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    session = OrtSession(to_onnx(exported, options=WITHOUT_CHECKS).to_bytes())
    for sizes in lengths:
        values = inputs(*sizes)
        with torch.no_grad():
            expected = model(*values)
        got = session.run(dict(zip(session.input_names, values, strict=True)))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def experts() -> None:
    axes = {0: Dim.DYNAMIC}
    if "config" not in inspect.signature(DbrxExperts).parameters:
        pytest.skip("the experts of transformers 4 take other arguments")
    is_right_on_every_length(Experts(), expert_inputs, ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, axes, axes))


def recurrence() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(
        Recurrence(),
        lambda batch, length: [torch.randn(8), torch.randn(batch, length, 8), torch.randn(batch, length, 8)],
        (None, axes, axes),
    )


class StateMask(torch.nn.Module):
    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        positions = torch.arange(x.shape[1])
        mask = modeling_bamba.BambaModel._update_mamba_mask(None, attention_mask, positions)
        return x if mask is None else x * mask[:, :, None]


def mask_of_a_recurrence() -> None:
    if not hasattr(modeling_bamba.BambaModel, "_update_mamba_mask"):
        pytest.skip("transformers 5 makes these masks in another way")
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(
        StateMask(),
        lambda batch, length: [torch.randn(batch, length, 8), torch.randint(0, 2, (batch, length))],
        (axes, axes),
    )


def mask() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Mask(), lambda batch, length: [torch.randint(0, 2, (batch, length))], (axes,))
    with torch_export_patches():
        program = torch.export.export(Mask(), (torch.zeros(3, 5, dtype=torch.int64),), dynamic_shapes=(axes,))
    left = [node.target for node in program.graph.nodes if "_functorch" in getattr(node.target, "__module__", "")]
    assert not left, f"operators of torch.vmap stay in the program: {left}"


class PaddedMask(torch.nn.Module):
    def forward(self, mask: torch.Tensor, keys: torch.Tensor) -> Any:
        return masking_utils.prepare_padding_mask(mask, keys.shape[1], 0)[:, : keys.shape[1]] & keys


def padding_of_a_mask() -> None:
    def inputs(batch: int, length: int) -> list[torch.Tensor]:
        ones = torch.ones(batch, 5, dtype=torch.bool)
        return [ones, torch.randint(0, 2, (batch, length)).bool()]

    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(PaddedMask(), inputs, (axes, axes))


class Shortened(torch.nn.Module):
    """As encoders of series, whose layers halve a text that has one mask for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.config = BertConfig(attn_implementation="sdpa")

    def forward(self, x: torch.Tensor) -> Any:
        mask = masking_utils.create_bidirectional_mask(config=self.config, inputs_embeds=x, attention_mask=None)
        half = x[:, ::2].unsqueeze(1)
        return torch.nn.functional.scaled_dot_product_attention(half, half, half, mask)


def no_mask() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Shortened(), lambda batch, length: [torch.randn(batch, length, 4)], (axes,))


class Codec(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = EncodecConv1d(EncodecConfig(use_causal_conv=True), 2, 3, kernel_size=5, stride=3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.conv(x)


def codec() -> None:
    lengths = {2: 20, 1: 21, 3: 11}
    is_right_on_every_length(
        Codec().eval(),
        lambda batch, _: [torch.randn(batch, 2, lengths[batch])],
        ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC},),
        lengths=[(2, 0), (1, 0), (3, 0)],
    )


class DeltaRule(torch.nn.Module):
    def forward(self, x: torch.Tensor, gates: torch.Tensor) -> Any:
        output, _ = modeling_qwen3_next.torch_chunk_gated_delta_rule(x, x, x, gates, gates.exp(), chunk_size=32)
        return output


def delta_rule() -> None:
    def inputs(batch: int, length: int) -> list[torch.Tensor]:
        return [torch.randn(batch, length, 2, 4), -torch.rand(batch, length, 2)]

    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    model, example = DeltaRule(), tuple(inputs(2, 40))
    is_right_on_every_length(model, inputs, (axes, axes), lengths=[(2, 40), (1, 70), (3, 5)])
    with torch_export_patches():
        program = torch.export.export(model, example, dynamic_shapes=(axes, axes), strict=False)
    assert len(program.graph.nodes) < 200  # each of the 32 rows of a chunk takes ten


def recurrences() -> None:
    recurrence()
    delta_rule()


class RecurrentMask(torch.nn.Module):
    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> Any:
        made = modeling_bamba.create_recurrent_attention_mask(None, states, mask)
        return states if made is None else states * made[..., None]


def masks_of_recurrences() -> None:
    """A padded token counts unless it is the only one; the past has a mask as well."""
    if not hasattr(modeling_bamba, "create_recurrent_attention_mask"):
        pytest.skip("transformers 4 makes these masks in another way")

    def inputs(batch: int, length: int) -> list[torch.Tensor]:
        mask = torch.ones(batch, length + 2, dtype=torch.int64)
        mask[0, :3] = 0
        return [torch.randn(batch, length, 4), mask]

    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC})
    is_right_on_every_length(RecurrentMask(), inputs, shapes, [(2, 3), (3, 7), (2, 1), (1, 1)])


PROGRAMS = {
    "masks of recurrences of any length": masks_of_recurrences,
    "masks of recurrences": mask_of_a_recurrence,
    "paddings of audio codecs": codec,
    "loops over the experts that were hit": experts,
    "loops over tokens": recurrences,
    "masks by broadcasting": mask,
    "padding of masks": padding_of_a_mask,
    "masks by broadcasting, transformers 4": mask,
    "indices of masks": mask,
    "no mask where nothing is masked": no_mask,
}
