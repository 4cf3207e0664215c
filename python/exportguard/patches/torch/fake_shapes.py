"""Shapes of results that torch's fake kernels get wrong, or read sizes as numbers for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

if TYPE_CHECKING:
    from exportguard._core import Changes

_aten = torch.ops.aten
_BOUNDS = "torch.fx.experimental.symbolic_shapes._constrain_range_for_size"

_check: Callable[..., Any] = torch._check  # without annotations in torch 2.11 to 2.13


def with_axis_from_start(original: Callable[..., Any]) -> Callable[..., Any]:
    """The fake kernel of `unique_consecutive`, which takes an axis that is counted from the end for a slice's bound."""

    @functools.wraps(original)
    def unique_consecutive(
        fake_mode: Any,
        func: Any,
        arg: torch.Tensor,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        axis = dim if dim is None else dim % max(arg.ndim, 1)
        return original(fake_mode, func, arg, return_inverse, return_counts, axis)

    return unique_consecutive


def pooled_volumes(
    fake_mode: Any,
    func: Any,
    self: torch.Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `fractional_max_pool3d` gives of volumes [batch, channels, …] or [channels, …] of any size."""
    for size, kernel, count in zip(self.shape[-3:], kernel_size, output_size, strict=True):
        _check(count + kernel - 1 < size, lambda: "fractional_max_pool3d: the pool is too large for the volume")
    sizes = (*self.shape[:-3], *output_size)
    with fake_mode:
        return self.new_empty(sizes), self.new_empty(sizes, dtype=torch.int64)


def _within_64_bits(original: Callable[..., None]) -> Callable[..., None]:
    """The bounds of a size that data decide; an axis has no more elements than 64 bits count.

    Of `x[mask].masked_select(other)` the bound is the largest number of elements of what data sized itself.
    """

    @functools.wraps(original)
    def _constrain_range_for_size(a: torch.SymInt, min: int | None = None, max: int | None = None) -> None:
        original(a, min, max if max is None or max < sys.maxsize else sys.maxsize - 1)

    return _constrain_range_for_size


def _apply(changes: Changes) -> None:
    from torch._subclasses.fake_impls import op_implementations_dict

    consecutive = _aten.unique_consecutive.default
    changes.set_item(op_implementations_dict, consecutive, with_axis_from_start(op_implementations_dict[consecutive]))
    changes.set_item(op_implementations_dict, _aten.fractional_max_pool3d.default, pooled_volumes)


def _probe() -> Verdict:
    # torch 2.11 to 2.13: a kernel in Python is one that takes symbolic sizes.
    from torch._decomp import meta_table

    has_volumes = _aten.fractional_max_pool3d.default in meta_table
    return not_needed("torch has the shapes of volumes in Python") if has_volumes else NEEDED


PATCHES = (
    Patch(
        name="shapes of fake kernels",
        kind="torch",
        target=("torch.unique_consecutive", "torch.nn.functional.fractional_max_pool3d"),
        reason="fake kernels give the distinct slices of a last axis a wrong shape, and volumes fixed sizes",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_impls.py",
        probe=_probe,
        apply=_apply,
    ),
    Patch(
        name="counts of 64 bits",
        kind="torch",
        target=_BOUNDS,
        reason="elements chosen among rows that data count are said to be fewer than a number beyond 64 bits",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_impls.py",
        probe=expecting(Expected(path=_BOUNDS, parameters="a, min, max")),
        replace=_within_64_bits,
    ),
)
