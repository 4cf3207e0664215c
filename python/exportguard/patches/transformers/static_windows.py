"""Static sliding-window layers of `transformers.cache_utils`: one rule before, at and beyond the window's length.

The layer holds as many places as its window is wide. New tokens follow those kept before; attention sees all of these,
or all places if they are more, and the last places stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import Patch

_Update = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _counter(layer: object) -> str:
    """transformers 5 counts in a tensor, too."""
    return "cumulative_length_int" if hasattr(layer, "cumulative_length_int") else "cumulative_length"


def _kept_and_seen(layer: Any, new: Any) -> tuple[Any, Any]:
    """How many tokens stay before the new ones, and how many places attention sees."""
    width, count = layer.max_cache_len, getattr(layer, _counter(layer))
    kept = torch.sym_min(count, width - 1)  # type: ignore[no-untyped-call]
    return kept, torch.sym_max(kept + new, width)  # type: ignore[no-untyped-call]


def _appended(layer: Any, places: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """What attention sees; the last places are kept in `places`."""
    width, count, new = layer.max_cache_len, getattr(layer, _counter(layer)), states.shape[-2]
    kept, seen = _kept_and_seen(layer, new)
    overflow = torch.sym_max(count - width + 1, 0)  # type: ignore[no-untyped-call]
    shift = torch.sym_min(overflow, 1)  # type: ignore[no-untyped-call]
    position = torch.arange(seen, device=states.device)
    behind = torch.where(position < kept + new, position + (width - kept), position)
    source = torch.where(position < kept, position + shift, behind)
    result = torch.cat([places, states], 2).index_select(2, source)
    places.copy_(result.index_select(2, torch.arange(width, device=states.device) + (seen - width)))
    return result


def static_window_update(original: _Update) -> _Update:
    """`update` that takes the same way whatever the number of tokens seen."""

    def update(self: Any, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        count = getattr(self, _counter(self))
        if not self.is_initialized or not isinstance(count, torch.SymInt):
            return original(self, key_states, value_states, *args, **kwargs)
        seen = _appended(self, self.keys, key_states), _appended(self, self.values, value_states)
        total: Any = count + key_states.shape[-2]
        setattr(self, _counter(self), total)
        if isinstance(self.cumulative_length, torch.Tensor):
            fits = torch.full((), total, dtype=torch.int64, device=self.keys.device) <= self.max_cache_len
            self.cumulative_length.add_(fits * key_states.shape[-2])
        return seen

    return update


def static_window_mask_sizes(original: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    """The sizes of the mask for what `static_window_update` shows to attention."""

    def get_mask_sizes(self: Any, query: object) -> tuple[int, int]:
        count = getattr(self, _counter(self))
        if not isinstance(count, torch.SymInt):
            return original(self, query)
        new = query.shape[0] if isinstance(query, torch.Tensor) else query  # transformers 4 passes the positions
        offset: Any = torch.sym_max(count - self.max_cache_len + 1, 0)  # type: ignore[no-untyped-call]
        return _kept_and_seen(self, new)[1], offset

    return get_mask_sizes


_LAYER = "transformers.cache_utils.StaticSlidingWindowLayer"

PATCHES = (
    Patch(
        name="static window update",
        kind="transformers",
        target=f"{_LAYER}.update",
        reason="the tests whether the window is full fix the number of tokens seen",
        upstream="https://github.com/huggingface/transformers/pull/40039",
        versions="transformers>=4.57",
        replace=static_window_update,
    ),
    Patch(
        name="static window mask sizes",
        kind="transformers",
        target=f"{_LAYER}.get_mask_sizes",
        reason="the tests whether the window is full fix the number of tokens seen",
        upstream="https://github.com/huggingface/transformers/pull/40039",
        versions="transformers>=4.57",
        replace=static_window_mask_sizes,
    ),
)
