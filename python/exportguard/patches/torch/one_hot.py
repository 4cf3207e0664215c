"""One-hot vectors of a length that is a size or data: torch takes the number of classes as a constant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed


def of_any_length(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`one_hot` by comparison where the number of classes is symbolic, a tensor, or that of the data."""

    @functools.wraps(original)
    def one_hot(input: torch.Tensor, num_classes: object = -1) -> torch.Tensor:
        found = _of_data(input, num_classes)
        if not isinstance(found, torch.SymInt):
            return original(input, num_classes)
        classes: Any = found
        return (input.unsqueeze(-1) == torch.arange(classes, device=input.device)).long()

    return one_hot


def _of_data(input: torch.Tensor, classes: Any) -> Any:
    """How many classes there are: a tensor says it, or -1 that the largest is the last one."""
    # Not at the top: whoever traces a model has it by now.
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(classes, torch.Tensor):
        return classes.item()
    is_of_input = type(classes) is int and classes == -1 and isinstance(input, FakeTensor)
    return input.max().item() + 1 if is_of_input else classes


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
        reason="the number of classes becomes a constant, wrong for any other without an error; data stops the export",
        upstream="https://github.com/pytorch/pytorch/pull/169436",
        probe=_probe,
        replace=of_any_length,
    ),
)
