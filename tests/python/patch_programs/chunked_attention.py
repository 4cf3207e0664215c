"""Attention within chunks of a text, whose number follows from its length."""

from __future__ import annotations

import torch
import transformers

from exportguard import to_onnx


def _model(always_first: bool) -> torch.nn.Module:
    canine = transformers.models.canine.modeling_canine
    config = transformers.CanineConfig(hidden_size=16, num_attention_heads=2, intermediate_size=16)
    torch.manual_seed(0)
    sides = dict.fromkeys(
        ("attend_from_chunk_width", "attend_from_chunk_stride", "attend_to_chunk_width", "attend_to_chunk_stride"), 4
    )
    attention = canine.CanineAttention(config, local=True, always_attend_to_first_position=always_first, **sides)
    return attention.eval()  # type: ignore[no-any-return]


def attends_within_chunks() -> None:
    axes = {0: "batch", 1: "length"}
    for always_first in (False, True):
        model = _model(always_first)
        example = (torch.randn(2, 10, 16), torch.ones(2, 10, 10))
        onnx = to_onnx(model, example, dynamic_shapes=(axes, {**axes, 2: "length"}))
        for batch, length in ((2, 10), (1, 4), (3, 13), (2, 3), (1, 1)):
            states = torch.randn(batch, length, 16)
            mask = torch.ones(batch, length, length)
            mask[0, :, length // 2 :] = 0  # some chunks see nothing but what is masked
            (got,) = onnx.run({"hidden_states": states, "attention_mask": mask}).values()
            torch.testing.assert_close(got, model(states, mask)[0], rtol=1e-4, atol=1e-5)


PROGRAMS = {"attention within chunks": attends_within_chunks}
