"""Generates with onnxruntime-genai from a folder that it can load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..optional import OptionalModule

onnxruntime_genai: Any = OptionalModule("onnxruntime_genai")


def generate(folder: Path, input_ids: torch.Tensor, length: int) -> torch.Tensor:
    """Greedy generation of one text, (tokens,), up to that length in all; its end is not looked for before."""
    model = onnxruntime_genai.Model(str(folder))
    settings = onnxruntime_genai.GeneratorParams(model)
    settings.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = onnxruntime_genai.Generator(model, settings)
    generator.append_tokens([input_ids.tolist()])
    while not generator.is_done():
        generator.generate_next_token()
    return torch.tensor([int(token) for token in generator.get_sequence(0)])
