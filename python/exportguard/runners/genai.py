"""Generates with onnxruntime-genai from a folder that it can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..errors import ExportGuardError
from ..optional import OptionalModule

onnxruntime_genai: Any = OptionalModule("onnxruntime_genai")

_UNPACKED = {"session.disable_prepacking": "1"}


def generate(
    folder: Path,
    input_ids: torch.Tensor,
    length: int,
    others: Mapping[str, torch.Tensor] = MappingProxyType({}),
    *,
    packs_weights: bool = True,
) -> torch.Tensor:
    """Greedy generation for texts, (batch, tokens), up to that length in all; their end is not looked for before.
    `others` are what a model of recordings or pictures is given beside, by the names of the runtime.

    The texts are of one length: the runtime (0.18) reads padding as tokens, it has a mask of ones. What the folder says
    of penalties is left out. Without `packs_weights` those of the decoder stay in their file, as in SessionOptions.

    Raises:
        ExportGuardError: the runtime does not take the folder, in its own words.
    """
    try:
        return _generated(folder, input_ids, length, others, packs_weights)
    except RuntimeError as error:  # the one error of the runtime's binding
        reason = str(error).partition("\n")[0]
        raise ExportGuardError(f"onnxruntime-genai does not run what was exported: {reason}") from error


def _generated(
    folder: Path, input_ids: torch.Tensor, length: int, others: Mapping[str, torch.Tensor], packs_weights: bool
) -> torch.Tensor:
    config = onnxruntime_genai.Config(str(folder))
    if not packs_weights:
        config.overlay(json.dumps({"model": {"decoder": {"session_options": _UNPACKED}}}))
    model = onnxruntime_genai.Model(config)
    settings = onnxruntime_genai.GeneratorParams(model)
    settings.set_search_options(
        max_length=length,
        min_length=length,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        batch_size=len(input_ids),
    )
    generator = onnxruntime_genai.Generator(model, settings)
    if others:
        inputs = onnxruntime_genai.NamedTensors()
        for name, value in others.items():
            inputs[name] = value.numpy()
        generator.set_inputs(inputs)
    generator.append_tokens(input_ids.to(torch.int32).numpy())
    while not generator.is_done():
        generator.generate_next_token()
    return torch.tensor([[int(token) for token in generator.get_sequence(row)] for row in range(len(input_ids))])
