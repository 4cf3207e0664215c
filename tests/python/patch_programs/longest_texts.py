"""Texts that are cut where they are longer than so much, below, at and beyond it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch.export import Dim

from exportguard.models.catalogue import BuildOptions, build_architecture
from exportguard.models.tables import Architecture

from .constructs import is_right_on_every_length

LONGEST = 6


class FoundByText(torch.nn.Module):
    """Where in a picture a detector finds what a text names."""

    def __init__(self) -> None:
        super().__init__()
        architecture = Architecture(
            name="detector",
            task="feature-extraction",
            model_type="grounding-dino",
            config={"max_text_len": LONGEST, "encoder_layers": 1, "decoder_layers": 1},
        )
        case = build_architecture(architecture, BuildOptions())
        self.model: Any = case.model
        self.pixels = case.inputs({"batch": 1, "seq": 4})["pixel_values"][:1]

    def forward(self, ids: torch.Tensor) -> Any:
        found = self.model(pixel_values=self.pixels.expand(len(ids), -1, -1, -1), input_ids=ids)
        return found.encoder_last_hidden_state_text


def inputs(length: int) -> list[torch.Tensor]:
    return [torch.arange(3, 3 + length)[None]]


def cuts() -> None:
    if transformers.__version__.startswith("4."):
        pytest.skip("transformers 4 goes through the tokens that end a phrase one by one, which no export can")
    is_right_on_every_length(FoundByText(), inputs, ({1: Dim.DYNAMIC},), [(4,), (LONGEST,), (LONGEST + 1,), (11,)])


PROGRAMS = {"cuts of long texts": cuts}
