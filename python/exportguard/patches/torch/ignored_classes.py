"""Losses that ignore the class of a symbolic number: `cross_entropy(logits, target, ignore_index=logits.size(1))`.

So ask the heads that answer questions: an answer beyond the text counts as none. In ONNX the ignored class is an
attribute, a number that the file holds: targets of the symbolic one become such a number, which is no class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_CROSS_ENTROPY = "torch.nn.functional.cross_entropy"
_LIKELIHOOD = "torch.nn.functional.nll_loss"

_NO_CLASS = -(2**31)


def ignoring_a_number(original: Callable[..., Any]) -> Callable[..., Any]:
    """`cross_entropy` or `nll_loss`, whose ignored class may be symbolic."""

    @functools.wraps(original)
    def loss(
        input: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: Any = -100,
        *others: Any,
        **options: Any,
    ) -> Any:
        if isinstance(ignore_index, torch.SymInt) and not target.is_floating_point():
            ignored: Any = target == ignore_index
            target = target.masked_fill(ignored, _NO_CLASS)
            ignore_index = _NO_CLASS
        return original(input, target, weight, size_average, ignore_index, *others, **options)

    return loss


PATCHES = (
    Patch(
        name="ignored classes of symbolic numbers",
        kind="torch",
        target=(_CROSS_ENTROPY, _LIKELIHOOD),
        reason="the class that a loss ignores is a size of the example, and ONNX has a number there",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/functional.py",
        probe=expecting(
            Expected(path=_CROSS_ENTROPY, parameters="input, target, weight, size_average, ignore_index, ..."),
            Expected(path=_LIKELIHOOD, parameters="input, target, weight, size_average, ignore_index, ..."),
        ),
        replace=ignoring_a_number,
    ),
)
