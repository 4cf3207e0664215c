"""A text of any length, which Longformer cuts into chunks of the width of its window."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers import LongformerConfig, LongformerModel

from .constructs import is_right_on_every_length


class Text(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
        config = LongformerConfig(attention_window=4, vocab_size=16, max_position_embeddings=64, **sizes)
        self.model = LongformerModel(config).eval()

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(tokens, attention_mask=attention_mask).last_hidden_state


def texts(batch: int, length: int) -> list[torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 :] = 0
    return [torch.randint(2, 16, (batch, length)), mask]


def texts_of_any_length() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Text(), texts, (axes, axes), [(2, 6), (3, 8), (1, 21), (2, 3)])


PROGRAMS = {"chunks of a sliding attention": texts_of_any_length}
