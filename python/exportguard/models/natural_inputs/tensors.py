"""Random tensors that are the same for the same sizes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Sizes = Mapping[str, int]

_VOCABULARY = 256  # of a model that hashes characters, say, and has no table of them


def source_of(model: torch.nn.Module) -> torch.Tensor:
    """A parameter of the model, which tells its dtype and device."""
    return next(parameter for parameter in model.parameters() if parameter.is_floating_point())


def text_config(model: Any) -> Any:
    """The part of the configuration that describes the text."""
    return model.config.get_text_config()


def tokens(model: Any, shape: Sequence[int]) -> torch.Tensor:
    """Token numbers, none of them a special token that would stand for something else."""
    config = text_config(model)
    ids = torch.randint(3, max(4, _ordinary_tokens(model, config)), tuple(shape), generator=_generator(shape))
    return ids.to(source_of(model).device)


def values(model: torch.nn.Module, shape: Sequence[int]) -> torch.Tensor:
    """Normally distributed numbers in the model's dtype."""
    like = source_of(model)
    return torch.randn(tuple(shape), generator=_generator(shape)).to(like.device, like.dtype)


def mask(model: torch.nn.Module, batch: int, length: int, padded: int = 0) -> torch.Tensor:
    """An attention mask of ones; the first row has `padded` zeros in front."""
    ones = torch.ones(batch, length, dtype=torch.int64, device=source_of(model).device)
    ones[0, :padded] = 0
    return ones


def seen_by_all(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """For a model that takes one, the mask of tokens that all attend to: the last of the first text, two of the next, …

    Their numbers differ by row, as those of questions in front of texts do.
    """
    if "global_attention_mask" not in inspect.signature(model.forward).parameters:
        return {}
    rows = torch.arange(ids.shape[0], device=ids.device).unsqueeze(-1)
    from_end = torch.arange(ids.shape[1], device=ids.device).flip(0)
    return {"global_attention_mask": (from_end <= rows).to(ids.dtype)}


def _generator(shape: Sequence[int]) -> torch.Generator:
    return torch.Generator().manual_seed(sum(size * 31**place for place, size in enumerate(shape)) % 2**31)


def _ordinary_tokens(model: Any, config: Any) -> int:
    """Special tokens of small configurations stand at the end of the vocabulary."""
    special = [
        value
        for part in (config, model.config)
        for name, value in vars(part).items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value > 3
    ]
    return min([int(getattr(config, "vocab_size", None) or _VOCABULARY), *special])
