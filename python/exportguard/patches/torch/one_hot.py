"""One-hot vectors of a symbolic length: torch takes the number of classes as a constant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed


def of_any_length(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`one_hot` by comparison where the number of classes is symbolic."""

    @functools.wraps(original)
    def one_hot(input: torch.Tensor, num_classes: object = -1) -> torch.Tensor:
        if not isinstance(num_classes, torch.SymInt):
            return original(input, num_classes)
        classes: Any = num_classes
        return (input.unsqueeze(-1) == torch.arange(classes, device=input.device)).long()

    return one_hot


def _probe() -> Verdict:
    # The schema as text: its types show a SymInt as an int.
    if "SymInt num_classes" in str(torch.ops.aten.one_hot.default._schema):
        return not_needed("the operator takes a symbolic number of classes")
    return NEEDED


PATCHES = (
    Patch(
        name="one hot of a symbolic length",
        kind="torch",
        target="torch.nn.functional.one_hot",
        reason="the number of classes becomes a constant, and the program is wrong for any other without an error",
        upstream="https://github.com/pytorch/pytorch/pull/169436",
        probe=_probe,
        replace=of_any_length,
    ),
)
