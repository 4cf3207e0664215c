"""Tables of positions that grow with the text."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.speech_to_text.modeling_speech_to_text import Speech2TextSinusoidalPositionalEmbedding

from .constructs import is_right_on_every_length

#: Below, at and beyond the length of the table.
TABLE = 12
LENGTHS = [(2, 5), (3, 11), (2, 12), (1, 1), (2, 40)]
EMBEDDINGS = (
    M2M100SinusoidalPositionalEmbedding, Speech2TextSinusoidalPositionalEmbedding, SinusoidalPositionalEmbedding,
)  # fmt: skip


class Positions(torch.nn.Module):
    def __init__(self, embedding: Any, width: int) -> None:
        super().__init__()
        self.table = embedding(TABLE, width, 1)
        if hasattr(self.table, "make_weight"):  # this one has its entries drawn until its model fills them in
            self.table.make_weight(TABLE, width, 1)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.table(tokens)


def texts(batch: int, length: int) -> list[torch.Tensor]:
    tokens = torch.randint(2, 9, (batch, length))
    tokens[0, :1] = 1  # a padded one
    return [tokens]


def growing_tables() -> None:
    for embedding in EMBEDDINGS:
        for width in (8, 7):
            shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
            is_right_on_every_length(Positions(embedding, width), texts, shapes, LENGTHS)


PROGRAMS = {"tables of positions that grow": growing_tables}
