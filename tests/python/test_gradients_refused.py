"""Derivatives that are not traced are refused in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import grad, jacrev, vmap

from exportguard import ExportError, to_onnx

REFUSED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "of each row": (lambda x: vmap(grad(lambda row: row.sin().sum()))(x), "a gradient within torch.vmap is not traced"),
    "of each output": (lambda x: jacrev(lambda row: row.sin() * row.sum())(x[0]), "torch.func.jacrev is not traced"),
}


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", REFUSED)
def test_a_derivative_that_is_not_traced_is_refused(name: str) -> None:
    function, told = REFUSED[name]
    with pytest.raises(ExportError, match=told):
        to_onnx(Called(function).eval(), (torch.randn(3, 4),))
