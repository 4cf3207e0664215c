"""Derivatives that are not traced are refused in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import functional
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from exportguard import ExportError, LoweringError, to_onnx

REFUSED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "of each row": (lambda x: vmap(grad(lambda row: row.sin().sum()))(x), "a gradient within torch.vmap is not traced"),
    "of each output": (lambda x: jacrev(lambda row: row.sin() * row.sum())(x[0]), "torch.func.jacrev is not traced"),
    "in forward mode": (lambda x: jacfwd(lambda row: row.sin() * row.sum())(x[0]), "in forward mode .* are not traced"),
    "of a product": (lambda x: jvp(torch.sin, (x,), (x,))[1], "in forward mode .* are not traced"),
    "of second order": (lambda x: hessian(lambda row: row.sin().sum())(x[0]), "functional.jacobian"),
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


@pytest.mark.parametrize("name", ["jacobian", "hessian"])
def test_what_the_refusal_names_is_traced(name: str) -> None:
    function = {
        "jacobian": lambda x: functional.jacobian(lambda row: row.sin() * row.sum(), x),
        "hessian": lambda x: functional.hessian(lambda row: (row.sin() * row.sum()).sum(), x),
    }[name]
    x = torch.randn(4)
    found = to_onnx(Called(function).eval(), (x,)).run({"x": x})
    torch.testing.assert_close(found["output_0"], function(x))


@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.eigvals])
def test_eigenvalues_of_any_matrix_are_refused_with_what_to_write(function: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(LoweringError, match=r"aten.linalg_eig.*write torch.linalg.eigh for a symmetric matrix"):
        to_onnx(Called(lambda x: function(x)).eval(), (torch.randn(3, 3),))
