"""Adaptive maxima of pictures of which one axis stays: `adaptive_max_pool2d(x, (None, 3))`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_TARGET = "torch._C._nn.adaptive_max_pool2d"
_Pooled = tuple[torch.Tensor, torch.Tensor]


def _by_rows(original: Callable[..., _Pooled]) -> Callable[..., _Pooled]:
    """Values and places. In torch 2.11 to 2.13 the operator takes numbers alone, so that an axis that stays is fixed.

    Each row, or column, of that axis is pooled by itself, as a signal. Where both axes stay, torch has its way.
    """

    @functools.wraps(original)
    def adaptive_max_pool2d(input: torch.Tensor, output_size: Any, **kwargs: Any) -> _Pooled:
        sizes = output_size if isinstance(output_size, Sequence) else ()
        stay = [_stays(size, own) for size, own in zip(sizes, input.shape[-2:], strict=False)]
        if kwargs or stay not in ([True, False], [False, True]) or input.ndim not in (3, 4):
            return original(input, output_size, **kwargs)
        height, width = input.shape[-2:]
        if stay[0]:
            values, places = _pooled_rows(input, sizes[1])
            return values, places + (torch.arange(height, device=input.device) * width).unsqueeze(1)
        values, places = (x.mT for x in _pooled_rows(input.mT, sizes[0]))
        return values.contiguous(), (places * width + torch.arange(width, device=input.device)).contiguous()

    return adaptive_max_pool2d


def _pooled_rows(x: torch.Tensor, size: int) -> _Pooled:
    """Along the last axis, with the places in it."""
    values, places = torch.ops.aten.adaptive_max_pool1d.default(x.flatten(-3, -2), [size])
    return values.unflatten(-2, x.shape[-3:-1]), places.unflatten(-2, x.shape[-3:-1])


def _stays(size: object, own: object) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return isinstance(size, torch.SymInt) and isinstance(own, torch.SymInt) and statically_known_true(size == own)


def _probe() -> Verdict:
    taken = torch.ops.aten.adaptive_max_pool2d.default._schema.arguments[1].real_type
    return not_needed("torch takes sizes there") if "SymInt" in str(taken) else NEEDED


PATCHES = (
    Patch(
        name="maxima of rows of pictures",
        kind="torch",
        target=_TARGET,
        reason="the operator takes numbers alone for the sizes of its result, so that an axis that stays is fixed",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/native_functions.yaml",
        probe=_probe,
        replace=_by_rows,
    ),
)
