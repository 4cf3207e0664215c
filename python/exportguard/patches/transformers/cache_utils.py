"""Layers of `transformers.cache_utils`, of sliding windows and of convolutions: no branch on the number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


def _is_symbolic(*values: Any) -> bool:
    return any(isinstance(value, (torch.SymInt, torch.Tensor)) for value in values)


def keep_last(states: torch.Tensor, start: int) -> torch.Tensor:
    """`states[:, :, start:, :]` for a negative `start`, without asking whether there are that many tokens."""
    length = states.shape[2]
    if not _is_symbolic(length):
        return states[:, :, start:, :]
    # A slice would do, but torch then guards on whether the result is contiguous, that is, on the length.
    first = torch.sym_max(length + start, 0)  # type: ignore[no-untyped-call]
    return states.index_select(2, torch.arange(first, length, device=states.device))


KeepLast = exchange(
    "KeepLast",
    ("$states[:, :, -$count:, :]", "keep_last($states, -$count)"),
    ("$states[:, :, -$count + $more:, :]", "keep_last($states, -$count + $more)"),
    ("$states[:, :, -$count - $fewer:, :]", "keep_last($states, -$count - $fewer)"),
)


def sliding_mask_sizes(original: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    """The sizes of the mask from the sizes of the tensors, which are right on both sides of the window's length."""

    def get_mask_sizes(self: Any, query: object) -> tuple[int, int]:
        records = getattr(self, "record_past", False)  # of transformers 5
        if records or not self.is_initialized or not _is_symbolic(self.cumulative_length, self.keys.shape[-2]):
            return original(self, query)
        new = query.shape[0] if isinstance(query, torch.Tensor) else query  # transformers 4 passes the positions
        kept = self.keys.shape[-2]  # the last `sliding_window - 1` tokens, or all of them if they are fewer
        return kept + new, self.cumulative_length - kept

    return get_mask_sizes


def at_least(states: torch.Tensor, length: int) -> torch.Tensor:
    """The states, (batch, width, tokens), behind as many zeros as they are fewer than `length`."""
    tokens = states.shape[-1]
    if not _is_symbolic(tokens):
        return torch.nn.functional.pad(states, (max(length - tokens, 0), 0))
    behind = torch.nn.functional.pad(states, (length, 0))
    # A slice would do, but torch then asks whether there are more than `length`.
    first = torch.sym_min(tokens, length)  # type: ignore[no-untyped-call]
    return behind.index_select(-1, torch.arange(first, tokens + length, device=states.device))


AtLeast = exchange(
    "AtLeast",
    (
        "if not self.record_past and $states.shape[-1] < $length:\n"
        "    padding_length = $length - $states.shape[-1]\n"
        "    $states = torch.nn.functional.pad($states, (padding_length, 0), value=0)",
        "if not self.record_past:\n    $states = at_least($states, $length)",
    ),
)

_LAYER = "transformers.cache_utils.DynamicSlidingWindowLayer"

PATCHES = (
    Patch(
        name="states of short texts",
        kind="transformers",
        target="transformers.cache_utils.LinearAttentionLayer.update_conv_state",
        reason="whether the first text is shorter than the convolution is decided for the traced one",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/cache_utils.py",
        versions="transformers>=5.16",
        replace=rewrite(AtLeast, at_least=at_least),
    ),
    Patch(
        name="sliding window update",
        kind="transformers",
        target=f"{_LAYER}.update",
        reason="the slice of the last tokens fixes whether the past is longer than the window",
        upstream="https://github.com/huggingface/transformers/pull/40039",
        versions="transformers>=4.57",
        replace=rewrite(KeepLast, keep_last=keep_last),
    ),
    Patch(
        name="sliding window mask sizes",
        kind="transformers",
        target=f"{_LAYER}.get_mask_sizes",
        reason="the test whether the window is full fixes the length of the past",
        upstream="https://github.com/huggingface/transformers/pull/40039",
        versions="transformers>=4.57",
        replace=sliding_mask_sizes,
    ),
)
