"""A loss that looks at its data before it computes: `gaussian_nll_loss` refuses a negative variance.

No graph refuses data. While a program is traced the question is left out, as other raises on data are; eager asks it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, not_needed

_Function = Callable[..., Any]

_TARGET = "torch.nn.functional.gaussian_nll_loss"

_REDUCTIONS: dict[str, _Function] = {"none": lambda loss: loss, "mean": torch.mean, "sum": torch.sum}


def _fitting(variance: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The variance with the rank of the input: one for each entry, for each row, or for all along one axis.

    :raises ValueError: for other sizes, as eager does
    """
    if variance.shape == x.shape:
        return variance
    if variance.shape == x.shape[:-1]:
        return variance.unsqueeze(-1)
    others = [size for size, of_x in zip(variance.shape, x.shape, strict=False) if size != of_x]
    if variance.ndim != x.ndim or others != [1]:
        raise ValueError(f"the variance, {tuple(variance.shape)}, does not fit the input, {tuple(x.shape)}")
    return variance


def _without_question(original: _Function) -> _Function:
    @functools.wraps(original)
    def gaussian_nll_loss(
        input: torch.Tensor,
        target: torch.Tensor,
        var: Any,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Any:
        if not torch.compiler.is_exporting() or not isinstance(var, torch.Tensor) or reduction not in _REDUCTIONS:
            return original(input, target, var, full, eps, reduction)
        variance = _fitting(var, input).clamp(min=eps)
        loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
        if full:
            loss = loss + 0.5 * math.log(2 * math.pi)
        return _REDUCTIONS[reduction](loss)

    return gaussian_nll_loss


PATCHES = (
    Patch(
        name="checks of losses",
        kind="torch",
        target=_TARGET,
        reason="whether a variance is negative is asked of its data, and the export stops there",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/functional.py",
        probe=expecting(
            Expected(path=_TARGET, has=("torch.any(var < 0)",)),
            otherwise=not_needed("torch asks the variance nothing"),
        ),
        replace=_without_question,
    ),
)
