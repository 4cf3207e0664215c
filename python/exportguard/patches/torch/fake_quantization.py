"""Rounding to a grid in training, at symbolic sizes: torch has no shape function for the operators under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import decomposition_table

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, not_needed

if TYPE_CHECKING:
    from exportguard._core import Changes

_Rounded = tuple[torch.Tensor, torch.Tensor]
_aten = torch.ops.aten


def on_grid(x: torch.Tensor, scale: Any, zero_point: Any, low: int, high: int) -> _Rounded:
    """`x` on the grid, and whether each element was within its range."""
    places = torch.round(x * (1.0 / scale) + zero_point)
    is_within = (places >= low) & (places <= high)
    return ((places.clamp(low, high) - zero_point) * scale).to(x.dtype), is_within


def by_tensor(x: torch.Tensor, scale: Any, zero_point: Any, low: int, high: int) -> _Rounded:
    """One scale for all elements."""
    return on_grid(x, scale, zero_point, low, high)


def by_enabled_tensor(x: torch.Tensor, scale: Any, zero_point: Any, enabled: Any, low: int, high: int) -> _Rounded:
    """The same where a tensor says whether to round at all."""
    rounded, is_within = on_grid(x, scale, zero_point, low, high)
    return torch.where(enabled >= 1, rounded, x), is_within | (enabled < 1)


def by_channel(x: torch.Tensor, scale: Any, zero_point: Any, axis: int, low: int, high: int) -> _Rounded:
    """A scale for each slice along an axis."""
    sizes = [-1 if place == axis else 1 for place in range(x.dim())]
    return on_grid(x, scale.reshape(sizes), zero_point.reshape(sizes), low, high)


# What torch 2.11 to 2.13 look up for an operator at symbolic sizes that has no other shape function.
_DECOMPOSITIONS: dict[Any, Callable[..., _Rounded]] = {
    _aten.fake_quantize_per_tensor_affine_cachemask.default: by_tensor,
    _aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: by_enabled_tensor,
    _aten.fake_quantize_per_channel_affine_cachemask.default: by_channel,
}


def _missing() -> list[Any]:
    return [operator for operator in _DECOMPOSITIONS if operator not in decomposition_table]


def _apply(changes: Changes) -> list[Replacement]:
    for operator in _missing():
        changes.set_item(decomposition_table, operator, _DECOMPOSITIONS[operator])
    return []


def _probe() -> Verdict:
    return NEEDED if _missing() else not_needed("torch takes the operators apart")


PATCHES = (
    Patch(
        name="fake quantization of symbolic sizes",
        kind="torch",
        target="torch._decomp.decomposition_table",
        reason="the operators that round in training have no shape function",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_tensor.py",
        probe=_probe,
        apply=_apply,
    ),
)
