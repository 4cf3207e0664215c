"""Masks of a text that are widened by the tokens of a picture, which only a cache has: of none if the cache is empty.

Whether the cache has tokens is decided while the model is traced, and the program widens the mask of a first step too.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of
from exportguard.source.templates import Template, exchange
from exportguard.source.wrapping import innermost


def widened(ones: torch.Tensor, mask: torch.Tensor, past: Any) -> torch.Tensor:
    """The mask behind the ones of the cached picture; before them if the cache turns out to be empty.

    The model reads the mask from its beginning, as far as there are keys: what is behind the mask is not read then.
    """
    behind = torch.cat([ones, mask], dim=-1)
    if isinstance(past, int):
        return behind
    is_empty = torch.full((), past, dtype=torch.int64, device=mask.device) == 0
    return torch.where(is_empty, torch.cat([mask, ones], dim=-1), behind)


#: How many tokens the cache has: up to transformers 5.23, and from 5.24 on. In 5.17 the number of new ones decides.
_LENGTHS = ("past_key_values_length", "cache_length")

_WIDENED = {
    length: exchange(
        "WidenedMask",
        (
            "$mask = torch.cat([extended_attention_mask, $mask], dim=-1)",
            f"$mask = widened(extended_attention_mask, $mask, {length})",
        ),
    )
    for length in _LENGTHS
}
_ASKED = {length: Template(f"{length} > 0") for length in _LENGTHS}


def _length_asked_for(definition: ast.FunctionDef) -> str | None:
    return next((length for length, asked in _ASKED.items() if asked.within(definition)), None)


def _asks_for_a_past(definition: ast.FunctionDef) -> bool:
    return _length_asked_for(definition) is not None


def _widening(function: Any) -> Any:
    length = _length_asked_for(definition_of(innermost(function)))
    if length is None:
        raise RewriteError(f"{function.__qualname__} does not ask whether the cache has tokens")
    return rewrite(_WIDENED[length], widened=widened)(function)


PATCHES = (
    construct_patch(
        name="masks widened by a cached picture",
        marker=r"torch\.cat\(\[extended_attention_mask, ",
        mentions=("torch.cat([extended_attention_mask, ",),
        replace=_widening,
        has=_asks_for_a_past,
        reason="whether the cache has tokens is decided by the traced one, and the mask of a first step is moved",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/models/git/modeling_git.py",
    ),
)
