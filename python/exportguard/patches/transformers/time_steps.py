"""Time steps of mamba2's scans: what one token takes behind a past has no bounds, what several tokens take has them.

The models clamp the steps of several tokens to `dt_limit`. A single token behind a past goes another way, which clamps
nothing. A program for any number of tokens decides by their number when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


def bounded_steps(steps: torch.Tensor, limits: Sequence[float], state: torch.Tensor | None) -> torch.Tensor:
    """The steps, (batch, tokens, heads), within their limits, but for those of a single token behind a state.

    Steps come out of a softplus: limits of 0 and infinity change none.
    """
    low, high = limits
    bounded = torch.clamp(steps, min=low, max=high)
    length: Any = steps.shape[1]
    if state is None or isinstance(length, int) or (low <= 0 and high == float("inf")):
        return bounded
    is_single = torch.full((), length, dtype=torch.int64, device=steps.device) == 1
    return torch.where(is_single, steps, bounded)


BoundedSteps = exchange(
    "BoundedSteps",
    (
        "$steps = torch.clamp($steps, min=$limits[0], max=$limits[1])",
        "$steps = bounded_steps($steps, $limits, initial_states)",
    ),
)


PATCHES = (
    construct_patch(
        name="bounds of time steps",
        marker=r"torch\.clamp\((\w+), min=(\w+)\[0\], max=\2\[1\]\)",
        mentions=("torch.clamp(dt, ",),
        replace=rewrite(BoundedSteps, bounded_steps=bounded_steps),
        named=lambda name: name.endswith("_scan"),
        reason="one token behind a past takes steps without bounds, which a program for several tokens does not",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/models/zamba2/modeling_zamba2.py",
    ),
)
