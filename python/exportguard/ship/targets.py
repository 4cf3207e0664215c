"""Whether an encoder and a decoder in two files write what the model writes, step by step, in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exportguard.runners.onnxruntime import OrtSession
from exportguard.validation.discrepancies import Discrepancy

from .encoder_decoder import ENCODER_FILE, Source, Tensors, empty_past, feeds, next_past
from .generation import NEW_TOKENS, RECORDED, Agreement, agreement_of, compare_logits
from .sessions import Call, called, fitting, session_of

_SHORTER = 2  # tokens that the second text lacks: it is padded behind
_LENGTH = 9

Calls = dict[str, list[Call]]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What the model itself makes of texts of two lengths, or of recordings, without any cache.

    `tokens` has the first token and the new ones, (batch, 1 + steps), none of which is one of the `ends`; `logits` one
    (batch, vocabulary) for each step.
    """

    inputs: Mapping[str, torch.Tensor]
    tokens: torch.Tensor
    logits: Sequence[torch.Tensor]
    ends: Sequence[int]


def targets_of(model: Any, source: Source) -> Targets:
    """Greedy, every step from the beginning: what keys and values are kept cannot hide in it."""
    inputs = _other_inputs(model, source)
    tokens = torch.full((len(source.states), 1), _first_token(model), dtype=torch.int64)
    logits: list[torch.Tensor] = []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits.append(model(**inputs, decoder_input_ids=tokens).logits[:, -1])
            tokens = torch.cat([tokens, chosen_of(logits[-1], ends_of(model))], dim=1)
    return Targets(inputs=inputs, tokens=tokens, logits=logits, ends=ends_of(model))


def compare_targets(folder: Path, source: Source, targets: Targets, calls: Calls) -> list[Discrepancy]:
    """The logits of each step, the decoder being fed with the tokens that the model chose.

    The calls of each file are added to `calls`: the encoder's, and those of the decoder in the first steps.
    """
    pairs = zip(targets.logits, _steps(folder, source, targets, calls), strict=True)
    return [compare_logits(step, *pair, source.states.dtype) for step, pair in enumerate(pairs)]


def agreement_with_targets(folder: Path, source: Source, targets: Targets) -> Agreement:
    """How near quantized files are."""
    return agreement_of(targets.logits, list(_steps(folder, source, targets)))


def recorded(folder: Path, targets: Targets) -> Mapping[str, torch.Tensor]:
    """The recordings, as the encoder takes them."""
    return _named(session_of(folder / ENCODER_FILE), targets.inputs)


def written_by(folder: Path, source: Source, targets: Targets) -> torch.Tensor:
    """The first token and what the files themselves go on with, (batch, 1 + steps)."""
    chosen = [targets.tokens[:, :1]]
    for logits in _steps(folder, source, targets, goes_on=chosen.__getitem__):
        chosen.append(chosen_of(logits, targets.ends))
    return torch.cat(chosen, dim=1)


def _steps(
    folder: Path,
    source: Source,
    targets: Targets,
    calls: Calls | None = None,
    goes_on: Callable[[int], torch.Tensor] | None = None,
) -> Iterator[torch.Tensor]:
    """The logits of each step's last token, (batch, vocabulary), behind those of the model or the ones of `goes_on`."""
    token = goes_on or (lambda step: targets.tokens[:, step : step + 1])
    encoder, decoder = session_of(folder / ENCODER_FILE), session_of(folder / source.decoder_file)
    first = called(encoder, _named(encoder, targets.inputs))
    encoded = first.outputs
    if calls is not None:
        calls.update({ENCODER_FILE: [first], source.decoder_file: []})
    states = encoded["last_hidden_state"]
    mask = targets.inputs.get("attention_mask")
    # Where the encoder makes the keys and values of its states, they are not computed in the first step.
    made = {name.replace("present", "past_key_values"): value for name, value in encoded.items() if "present" in name}
    past: Tensors = {**empty_past(source, len(states)), **made}

    for step in range(len(targets.logits)):
        given = fitting(decoder, feeds(decoder.input_names, token(step), states, mask, past))
        call = called(decoder, given)
        if calls is not None and step < RECORDED:
            calls[source.decoder_file].append(call)
        yield call.outputs["logits"][:, -1]
        past = next_past(call.outputs, past)


def _named(encoder: OrtSession, inputs: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """The encoder's inputs under the names of its file: a recording is the one there is."""
    names = encoder.input_names
    is_known = set(names) <= set(inputs)
    return fitting(
        encoder, {name: inputs[name] for name in names} if is_known else dict(zip(names, inputs.values(), strict=True))
    )


def _other_inputs(model: Any, source: Source) -> dict[str, torch.Tensor]:
    """Others than those of the export, of other lengths where they may be."""
    draw = torch.Generator().manual_seed(0)
    if "input_ids" in source.inputs:
        ids = torch.randint(3, _vocabulary(model, "encoder"), (2, _LENGTH), generator=draw)
        mask = torch.ones_like(ids)
        mask[1, -_SHORTER:] = 0
        known = {"input_ids": ids, "attention_mask": mask}
        return {name: known.get(name, _as_long(value, ids)) for name, value in source.inputs.items()}
    inputs: dict[str, torch.Tensor] = {}
    for name, value in source.inputs.items():
        longer = {axis for axis in source.shapes[name] if axis}
        shape = [2 * size if axis in longer else size for axis, size in enumerate(value.shape)]
        inputs[name] = torch.randn(shape, generator=draw).to(value.dtype)
    return inputs


def _vocabulary(model: Any, side: str) -> int:
    """How many tokens the "encoder" or the "decoder" knows: those of an `EncoderDecoderModel` have configurations of
    their own."""
    config = model.config.get_text_config(**{side: True})
    size: int = config.vocab_size if hasattr(config, "vocab_size") else getattr(model.config, side).vocab_size
    return size


def _as_long(value: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """What goes with other tokens, as a mask of those that attend to all: the same for each as for the first one."""
    return value[:1, :1].expand(ids.shape).clone() if value.dim() == ids.dim() else value


def chosen_of(logits: torch.Tensor, ends: Sequence[int]) -> torch.Tensor:
    """The most likely token that does not end the text, (batch, 1)."""
    allowed = logits.clone()
    allowed[:, list(ends)] = -torch.inf
    return allowed.argmax(-1, keepdim=True)


def ends_of(model: Any) -> list[int]:
    """The tokens that end a text, of those that the vocabulary has."""
    told = model.generation_config.eos_token_id
    ends = told if isinstance(told, list) else [told]
    count = _vocabulary(model, "decoder")
    return [end for end in ends if isinstance(end, int) and 0 <= end < count]


def _first_token(model: Any) -> int:
    parts = (model.generation_config, model.config, model.config.get_text_config())
    found = (getattr(part, name, None) for name in ("decoder_start_token_id", "bos_token_id") for part in parts)
    return next((token for token in found if isinstance(token, int)), 0)
