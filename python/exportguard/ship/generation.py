"""Whether a file generates what the model generates: the same texts, step by step, in the runtime itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exportguard.optional import OptionalModule
from exportguard.runners.onnxruntime import OrtSession
from exportguard.validation.discrepancies import Discrepancy, compare_outputs

from .decoder import KeysAndValues, empty_past, feeds

transformers: Any = OptionalModule("transformers")

_NEW_TOKENS = 6
_SHORTER = 2  # tokens that the second text lacks: it is padded in front
_LONGEST_PROMPT = 48


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Texts of two lengths, the shorter one padded in front, and what transformers generates for them.

    `tokens` has prompts and new tokens, (batch, length + steps); `logits` one (batch, vocabulary) for each step.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    tokens: torch.Tensor
    logits: Sequence[torch.Tensor]


def generated(model: Any, window: int | None) -> Prompts:
    """Greedy generation by transformers, from prompts longer than a sliding window that is not too long to try."""
    length = min(window + 4, _LONGEST_PROMPT) if window else 7
    vocabulary = model.config.get_text_config().vocab_size
    draw = torch.Generator().manual_seed(0)
    input_ids = torch.randint(3, vocabulary, (2, length), generator=draw)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, :_SHORTER] = 0
    with torch.no_grad():
        own = model.generation_config
        model.generation_config = _greedy(own)
        try:
            result = model.generate(input_ids=input_ids, attention_mask=attention_mask)
        finally:
            model.generation_config = own
    return Prompts(input_ids=input_ids, attention_mask=attention_mask, tokens=result.sequences, logits=[*result.logits])


def _greedy(own: Any) -> Any:
    """A configuration of the model's special tokens alone; its own may force tokens, or ban them, and `generate` fills
    in from it what an argument leaves open."""
    return transformers.GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=_NEW_TOKENS,
        min_new_tokens=_NEW_TOKENS,
        eos_token_id=own.eos_token_id,
        bos_token_id=own.bos_token_id,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )


def compare_generation(file: Path, cache: KeysAndValues, prompts: Prompts, dtype: torch.dtype) -> list[Discrepancy]:
    """The logits of each step, the file being fed with the tokens that transformers chose."""
    session = OrtSession(file)
    length = prompts.input_ids.shape[1]
    past = empty_past(session.input_names, cache, len(prompts.input_ids), dtype)
    ids, mask = prompts.input_ids, prompts.attention_mask
    compared: list[Discrepancy] = []
    for step, expected in enumerate(prompts.logits):
        outputs = dict(zip(session.output_names, session.run(feeds(session.input_names, ids, mask, past)), strict=True))
        got = outputs["logits"][:, -1, :]
        compared += compare_outputs([f"logits of step {step}"], [expected.to(got.dtype)], [got])
        past = {name: outputs[name.replace("past_key_values.", "present.")] for name in past}
        ids = prompts.tokens[:, length + step : length + step + 1]
        mask = torch.cat([mask, torch.ones(len(mask), 1, dtype=mask.dtype)], dim=1)
    return compared
