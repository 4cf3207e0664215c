"""The sizes of pools with `ceil_mode`: a last window that would start in the padding is left out, without a guard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, not_needed

# The function that the shapes of every pool are computed by, in torch 2.11 to 2.13.
_TARGET = "torch._meta_registrations.pooling_output_shape_pad_lr"

# Without annotations in torch 2.11 to 2.13.
_sym_min: Callable[..., Any] = torch.sym_min


def _without_question(original: Callable[..., Any]) -> Callable[..., Any]:
    """How many windows there are: torch takes one away if `(count - 1) * stride >= size + padding`.

    As many as start before the end of the values are left, which is one formula for all sizes. The padding is at most
    half of a window, so that it is never more than one that is taken away.
    """

    @functools.wraps(original)
    def windows(size: Any, kernel: Any, before: Any, behind: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
        if not ceil_mode or not isinstance(size, torch.SymInt):
            return original(size, kernel, before, behind, stride, dilation, ceil_mode)
        reached = (size + before + behind - dilation * (kernel - 1) - 2 + stride) // stride + 1
        if before == 0 and behind == 0 and stride <= dilation * (kernel - 1) + 1:
            return reached  # the last one starts where the one before it ends, or earlier
        return _sym_min(reached, (size + before - 1) // stride + 1)

    return windows


PATCHES = (
    Patch(
        name="pools rounded up",
        kind="torch",
        target=_TARGET,
        reason="whether the last window starts in the padding is decided for the traced size, and the axis bounded",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_meta_registrations.py",
        probe=expecting(
            Expected(path=_TARGET, has=("(outputSize - 1) * stride >= $end",)),
            otherwise=not_needed("torch asks the sizes of pools nothing"),
        ),
        replace=_without_question,
    ),
)
