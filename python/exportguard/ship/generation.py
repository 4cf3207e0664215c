"""Whether a file generates what the model generates: the same texts, step by step, in the runtime itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from exportguard.errors import REFUSALS, ExportGuardError
from exportguard.optional import OptionalModule
from exportguard.validation.discrepancies import BLIND, Discrepancy, can_tell, compare_outputs
from exportguard.validation.exactness import in_float64

from .as_exact import exact_or_as_it_was
from .decoder import KeysAndValues, empty_past, feeds
from .sessions import Call, called, fitting, session_of

transformers: Any = OptionalModule("transformers")

NEW_TOKENS = 6
RECORDED = 2  # steps whose calls are kept: with prompts, and with a cache
_SHORTER = 2  # tokens that the second text lacks: it is padded in front
_LONGEST_PROMPT = 48


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Two texts, a shorter one padded in front, and what transformers generates for them.

    `tokens` has prompts and new tokens, (batch, length + steps); `logits` one (batch, vocabulary) for each step.
    """

    model: Any
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    tokens: torch.Tensor
    logits: Sequence[torch.Tensor]


def generated(model: Any, window: int | None, *, shorter: int = _SHORTER, ends: Any = None) -> Prompts:
    """Greedy generation by transformers, from prompts longer than a sliding window that is not too long to try.

    The second text is `shorter` than the first by that many tokens. None of `ends` is chosen, nor what ends a text for
    transformers if these are not given.

    Raises:
        ExportGuardError: transformers does not generate.
    """
    length = min(window + 4, _LONGEST_PROMPT) if window else 7
    vocabulary = model.config.get_text_config().vocab_size
    draw = torch.Generator().manual_seed(0)
    input_ids = torch.randint(3, vocabulary, (2, length), generator=draw)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, :shorter] = 0
    with torch.no_grad():
        own = model.generation_config
        model.generation_config = _greedy(own, own.eos_token_id if ends is None else ends)
        try:
            result = model.generate(input_ids=input_ids, attention_mask=attention_mask)
        except REFUSALS as error:
            reason = str(error).partition("\n")[0]
            raise ExportGuardError(
                f"transformers does not generate with {type(model).__name__}: {type(error).__name__}: {reason}; see "
                "that the special tokens in generation_config.json are numbers of tokens"
            ) from error
        finally:
            model.generation_config = own
    return Prompts(
        model=model,
        input_ids=input_ids,
        attention_mask=attention_mask,
        tokens=result.sequences,
        logits=[*result.logits],
    )


def _greedy(own: Any, ends: Any) -> Any:
    """A configuration of the model's special tokens alone; its own may force tokens, or ban them, and `generate` fills
    in from it what an argument leaves open."""
    return transformers.GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        eos_token_id=ends,
        bos_token_id=own.bos_token_id,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How near a quantized file is: the share of steps at which it takes the same token, and the divergence of its
    distribution over the vocabulary from the model's (Kullback-Leibler, in nats), on the mean and at worst."""

    tokens_equal: float
    divergence: float
    largest_divergence: float


def agreement(file: Path, cache: KeysAndValues, prompts: Prompts, dtype: torch.dtype) -> Agreement:
    """Compares step by step, the file being fed with the tokens that transformers chose."""
    steps = _steps(file, cache, prompts, dtype)
    return agreement_of(prompts.logits, [step.outputs["logits"][:, -1, :] for step in steps])


def agreement_of(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> Agreement:
    """Of the logits of each step, (batch, vocabulary)."""
    divergences, equal = [], []
    for wanted, given in zip(expected, got, strict=True):
        ours, theirs = given.double().log_softmax(-1), wanted.double().log_softmax(-1)
        divergences.append((theirs.exp() * (theirs - ours)).sum(-1))
        equal.append(ours.argmax(-1) == wanted.argmax(-1))
    all_divergences = torch.cat(divergences)
    return Agreement(
        tokens_equal=torch.cat(equal).double().mean().item(),
        divergence=all_divergences.mean().item(),
        largest_divergence=all_divergences.max().item(),
    )


def generated_by(file: Path, cache: KeysAndValues, prompts: Prompts, dtype: torch.dtype) -> torch.Tensor:
    """The prompts and what the file itself goes on with in onnxruntime, as (batch, tokens)."""
    session = session_of(file)
    ids, mask = prompts.input_ids, prompts.attention_mask
    past = empty_past(session.input_names, cache, len(ids), dtype)
    tokens = ids
    for _ in prompts.logits:
        outputs = called(session, fitting(session, feeds(session.input_names, ids, mask, past))).outputs
        past = {name: outputs[name.replace("past_key_values.", "present.")] for name in past}
        ids = outputs["logits"][:, -1:, :].argmax(-1)
        tokens, mask = torch.cat([tokens, ids], dim=1), torch.cat([mask, torch.ones_like(ids)], dim=1)
    return tokens


def compare_generation(
    file: Path, cache: KeysAndValues, prompts: Prompts, dtype: torch.dtype, calls: list[Call]
) -> list[Discrepancy]:
    """The logits of each step, the file being fed with the tokens that transformers chose.

    The calls for the prompts, and for the token behind them, are added to `calls`.
    """
    compared: list[Discrepancy] = []
    got: list[torch.Tensor] = []
    steps = _steps(file, cache, prompts, dtype)
    for number, (expected, step) in enumerate(zip(prompts.logits, steps, strict=True)):
        got.append(step.outputs["logits"][:, -1, :])
        compared.append(compare_logits(number, expected, got[-1], dtype))
        if number < RECORDED:
            calls.append(step)
    return exact_or_as_it_was(compared, [row.to(dtype) for row in prompts.logits], got, lambda: _exact_logits(prompts))


def _exact_logits(prompts: Prompts) -> Sequence[torch.Tensor]:
    """Those of each step where the model computes in float64 and goes on with the same tokens."""
    length = prompts.input_ids.shape[1]

    def chosen(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        following = prompts.tokens[:, tokens.shape[1], None]
        return torch.full_like(scores, -torch.inf).scatter(1, following, 0.0)

    wide = copy.deepcopy(prompts.model).double()
    wide.generation_config = _greedy(prompts.model.generation_config, None)
    with torch.no_grad(), in_float64():
        result = wide.generate(
            input_ids=prompts.tokens[:, :length], attention_mask=prompts.attention_mask, logits_processor=[chosen]
        )
    return [*result.logits]


def compare_logits(step: int, expected: torch.Tensor, got: torch.Tensor, dtype: torch.dtype) -> Discrepancy:
    """Those of one step of a model that computes in `dtype`: a wider dtype of either side tells no more of them.

    Logits of broken weights, which are NaN or all equal, agree with nothing.
    """
    (compared,) = compare_outputs([f"logits of step {step}"], [expected.to(dtype)], [got.to(dtype)])
    return compared if can_tell([expected]) else replace(compared, problem=BLIND)


def _steps(file: Path, cache: KeysAndValues, prompts: Prompts, dtype: torch.dtype) -> Iterator[Call]:
    """The call of each step."""
    session = session_of(file)
    length = prompts.input_ids.shape[1]
    past = empty_past(session.input_names, cache, len(prompts.input_ids), dtype)
    ids, mask = prompts.input_ids, prompts.attention_mask
    for step in range(len(prompts.logits)):
        call = called(session, fitting(session, feeds(session.input_names, ids, mask, past)))
        yield call
        past = {name: call.outputs[name.replace("past_key_values.", "present.")] for name in past}
        ids = prompts.tokens[:, length + step : length + step + 1]
        mask = torch.cat([mask, torch.ones(len(mask), 1, dtype=mask.dtype)], dim=1)
