"""Rotary positions that a module keeps for the length that it was called with last."""

from __future__ import annotations

import torch
from torch.export import Dim
from transformers import Wav2Vec2ConformerConfig
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer

from .pictures import is_right_on_all


def kept() -> None:
    """The model was called before the export, and at the traced length last or at another."""
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
    config = Wav2Vec2ConformerConfig(**small, position_embeddings_type="rotary", conv_depthwise_kernel_size=3)
    encoder = conformer.Wav2Vec2ConformerEncoder(config).eval()
    calls = [(torch.randn(batch, frames, 16),) for batch, frames in ((2, 7), (1, 4), (3, 19), (1, 1))]
    for before in (7, 4):
        with torch.no_grad():
            encoder(torch.randn(2, before, 16))
        is_right_on_all(encoder, calls, ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))


PROGRAMS = {"results kept for one length": kept}
