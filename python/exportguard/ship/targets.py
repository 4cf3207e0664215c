"""Whether an encoder and a decoder in two files write what the model writes, step by step, in onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exportguard.validation.discrepancies import Discrepancy, compare_outputs

from .encoder_decoder import DECODER_FILE, ENCODER_FILE, Source, Tensors, empty_past, feeds, next_past
from .generation import NEW_TOKENS, Agreement, agreement_of
from .sessions import session_of

_SHORTER = 2  # tokens that the second text lacks: it is padded behind
_LENGTH = 9

Calls = dict[str, list[Mapping[str, torch.Tensor]]]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What the model itself makes of texts of two lengths, or of recordings, without any cache.

    `tokens` has the first token and the new ones, (batch, 1 + steps); `logits` one (batch, vocabulary) for each step.
    """

    inputs: Mapping[str, torch.Tensor]
    tokens: torch.Tensor
    logits: Sequence[torch.Tensor]


def targets_of(model: Any, source: Source) -> Targets:
    """Greedy, every step from the beginning: what keys and values are kept cannot hide in it."""
    inputs = _other_inputs(model, source)
    tokens = torch.full((len(source.states), 1), _first_token(model), dtype=torch.int64)
    logits: list[torch.Tensor] = []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits.append(model(**inputs, decoder_input_ids=tokens).logits[:, -1])
            tokens = torch.cat([tokens, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return Targets(inputs=inputs, tokens=tokens, logits=logits)


def compare_targets(folder: Path, source: Source, targets: Targets) -> list[Discrepancy]:
    """The logits of each step, the decoder being fed with the tokens that the model chose."""
    compared: list[Discrepancy] = []
    for step, (expected, got) in enumerate(zip(targets.logits, _steps(folder, source, targets), strict=True)):
        compared += compare_outputs([f"logits of step {step}"], [expected.to(got.dtype)], [got])
    return compared


def agreement_with_targets(folder: Path, source: Source, targets: Targets) -> Agreement:
    """How near quantized files are."""
    return agreement_of(targets.logits, list(_steps(folder, source, targets)))


def calls_of_targets(folder: Path, source: Source, targets: Targets) -> Calls:
    """What each file is given: the encoder once, the decoder in the first step and in the one behind it."""
    calls: Calls = {ENCODER_FILE: [targets.inputs], DECODER_FILE: []}
    for _ in itertools.islice(_steps(folder, source, targets, calls), 2):
        pass
    return calls


def _steps(folder: Path, source: Source, targets: Targets, calls: Calls | None = None) -> Iterator[torch.Tensor]:
    """The logits of each step's last token, (batch, vocabulary)."""
    encoder, decoder = session_of(folder / ENCODER_FILE), session_of(folder / DECODER_FILE)
    encoded = {name: targets.inputs[name] for name in encoder.input_names}
    states = dict(zip(encoder.output_names, encoder.run(encoded), strict=True))["last_hidden_state"]
    mask = targets.inputs.get("attention_mask")
    past: Tensors = empty_past(source, len(states))

    for step in range(len(targets.logits)):
        given = feeds(decoder.input_names, targets.tokens[:, step : step + 1], states, mask, past)
        if calls is not None:
            calls[DECODER_FILE].append(given)
        outputs = dict(zip(decoder.output_names, decoder.run(given), strict=True))
        yield outputs["logits"][:, -1]
        past = next_past(outputs, past)


def _other_inputs(model: Any, source: Source) -> dict[str, torch.Tensor]:
    """Others than those of the export, of other lengths where they may be."""
    draw = torch.Generator().manual_seed(0)
    if "input_ids" in source.inputs:
        vocabulary = model.config.get_text_config(encoder=True).vocab_size
        ids = torch.randint(3, vocabulary, (2, _LENGTH), generator=draw)
        mask = torch.ones_like(ids)
        mask[1, -_SHORTER:] = 0
        known = {"input_ids": ids, "attention_mask": mask}
        return {name: known[name] for name in source.inputs}
    inputs: dict[str, torch.Tensor] = {}
    for name, value in source.inputs.items():
        longer = {axis for axis in source.shapes[name] if axis}
        shape = [2 * size if axis in longer else size for axis, size in enumerate(value.shape)]
        inputs[name] = torch.randn(shape, generator=draw).to(value.dtype)
    return inputs


def _first_token(model: Any) -> int:
    parts = (model.generation_config, model.config, model.config.get_text_config())
    found = (getattr(part, name, None) for name in ("decoder_start_token_id", "bos_token_id") for part in parts)
    return next((token for token in found if isinstance(token, int)), 0)
