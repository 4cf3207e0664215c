"""Masks of a text that are widened by the tokens of a picture, which only a cache has: of none if the cache is empty.

Whether the cache has tokens is decided while the model is traced, and the program widens the mask of a first step too.
"""

from __future__ import annotations

from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


def widened(ones: torch.Tensor, mask: torch.Tensor, past: Any) -> torch.Tensor:
    """The mask behind the ones of the cached picture; before them if the cache turns out to be empty.

    The model reads the mask from its beginning, as far as there are keys: what is behind the mask is not read then.
    """
    behind = torch.cat([ones, mask], dim=-1)
    if isinstance(past, int):
        return behind
    is_empty = torch.full((), past, dtype=torch.int64, device=mask.device) == 0
    return torch.where(is_empty, torch.cat([mask, ones], dim=-1), behind)


WidenedMask = exchange(
    "WidenedMask",
    (
        "$mask = torch.cat([extended_attention_mask, $mask], dim=-1)",
        "$mask = widened(extended_attention_mask, $mask, past_key_values_length)",
    ),
)


PATCHES = (
    construct_patch(
        name="masks widened by a cached picture",
        marker=r"torch\.cat\(\[extended_attention_mask, ",
        mentions=("torch.cat([extended_attention_mask, ",),
        replace=rewrite(WidenedMask, widened=widened),
        reason="whether the cache has tokens is decided by the traced one, and the mask of a first step is moved",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/models/git/modeling_git.py",
    ),
)
