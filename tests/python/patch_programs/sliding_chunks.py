"""Texts of any length, which Longformer and LED cut into chunks, with tokens that all attend to, or without."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers import LEDConfig, LEDModel, LongformerConfig, LongformerModel

from exportguard import to_onnx

from .constructs import is_right_on_every_length


def longformer() -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    return LongformerModel(LongformerConfig(attention_window=4, vocab_size=16, max_position_embeddings=64, **sizes))


def led_encoder() -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return LEDModel(LEDConfig(attention_window=4, vocab_size=16, decoder_layers=1, **sizes)).encoder


class Text(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = longformer().eval()

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(tokens, attention_mask=attention_mask).last_hidden_state


class TextWithGlobalTokens(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor, is_global: torch.Tensor) -> Any:
        return self.model(tokens, attention_mask, global_attention_mask=is_global).last_hidden_state


def texts(batch: int, length: int) -> list[torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 :] = 0
    return [torch.randint(2, 16, (batch, length)), mask]


def texts_of_any_length() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Text(), texts, (axes, axes), [(2, 6), (3, 8), (1, 21), (2, 3)])


def texts_with_global_tokens(batch: int, length: int) -> list[torch.Tensor]:
    """The first token of each text, and every third of the first one; none at all in a text of eight."""
    is_global = torch.zeros(batch, length, dtype=torch.int64)
    if length != 8:
        is_global[:, 0] = is_global[0, ::3] = 1
    return [*texts(batch, length), is_global]


def texts_with_global_ends(batch: int, length: int) -> list[torch.Tensor]:
    """The last token of the first text, two of the next: a shorter text that is cut from these has none."""
    from_end = torch.arange(length).flip(0)
    return [*texts(batch, length), (from_end <= torch.arange(batch).unsqueeze(-1)).long()]


def global_tokens() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    sizes = [(2, 6), (3, 8), (1, 21), (2, 3), (1, 1)]
    for model in (longformer(), led_encoder()):
        is_right_on_every_length(TextWithGlobalTokens(model), texts_with_global_tokens, (axes, axes, axes), sizes)


def texts_cut_short() -> None:
    """Sizes are proved with texts that are cut from the example."""
    names = {0: "batch", 1: "tokens"}
    example = tuple(texts_with_global_ends(2, 6))
    onnx = to_onnx(TextWithGlobalTokens(longformer()), example, dynamic_shapes=(names, names, names))
    assert all(axis.kept for axis in onnx.axes)


def sliding_attention() -> None:
    texts_of_any_length()
    global_tokens()
    texts_cut_short()


PROGRAMS = {"chunks of a sliding attention": sliding_attention}
