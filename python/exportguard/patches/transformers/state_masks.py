"""Masks of recurrences: which tokens they leave out is computed, whatever the mask holds.

Some models have no mask where every token counts and while they go on from a cache, which asks tensors for their
content. A mask of ones for the new tokens does the same.
"""

from __future__ import annotations

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


def mask_of_new_tokens(attention_mask: torch.Tensor | None, cache_position: torch.Tensor) -> torch.Tensor | None:
    """Of shape (batch, new tokens): ones behind a past, else what the mask of all tokens says."""
    if attention_mask is None:
        return None
    new = attention_mask[:, attention_mask.shape[1] - cache_position.shape[0] :]
    return torch.where(cache_position[0] > 0, torch.ones_like(new), new)


AlwaysMask = exchange(
    "AlwaysMask",
    (
        "if $position[0] > 0 or ($all is not None and torch.all($all == 1)):\n    $mask = None",
        "$mask = mask_of_new_tokens($all, $position)",
    ),
)

_replace = rewrite(AlwaysMask, mask_of_new_tokens=mask_of_new_tokens)


PATCHES = (
    construct_patch(
        name="masks of recurrences",
        marker=r"if cache_position\[0\] > 0 or \(attention_mask is not None and ",
        mentions=("if cache_position[0] > 0 or ",),
        replace=_replace,
        reason="whether there is a mask depends on its content, which stops the export",
        upstream="https://github.com/huggingface/transformers/pull/32914",
    ),
)
