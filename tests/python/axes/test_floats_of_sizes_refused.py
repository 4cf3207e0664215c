"""Sizes that a model refuses by what floats make of them: `int(0.3 * n)` of nothing, which a file has no float for."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import FloorToInt, IntTrueDiv, TruncToInt
from torch.utils._sympy.functions import ToFloat as AsFloat

from exportguard import ExportGuardError, to_onnx
from exportguard.axes.expressions import Range
from exportguard.axes.monotone import sizes_that_break
from exportguard.size_floats import FloatProduct, FloatSum

FACTORS = (0.1, 0.3, 0.5, 0.7, 0.95, 1.5)
MODES = ("nearest", "linear", "linear, corners aligned")


class Resized(torch.nn.Module):
    def __init__(self, factor: float, mode: str) -> None:
        super().__init__()
        self.factor, self.mode = factor, mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mode, _, corners = self.mode.partition(", ")
        aligned = None if mode == "nearest" else bool(corners)
        return functional.interpolate(x, scale_factor=self.factor, mode=mode, align_corners=aligned)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("mode", MODES)
def test_a_file_refuses_what_a_resizing_refuses(factor: float, mode: str) -> None:
    model = Resized(factor, mode)
    file = to_onnx(model, (torch.randn(1, 2, 24),), dynamic_shapes=({2: "n"},))
    for size in (*range(1, 16), 40):
        x = torch.randn(1, 2, size)
        if int(size * factor) == 0:
            with pytest.raises(ExportGuardError, match="only sizes with"):
                file.run({file.inputs[0].name: x})
        else:
            (got,) = file.run({file.inputs[0].name: x}).values()
            torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


n = sympy.Symbol("n", integer=True, positive=True)
EXPRESSIONS = {
    "product": TruncToInt(FloatProduct(sympy.Float(0.3), AsFloat(n))),
    "product rounded down": FloorToInt(FloatProduct(sympy.Float(0.15), AsFloat(n))),
    "sum": TruncToInt(FloatSum(sympy.Float(-1.5), FloatProduct(sympy.Float(0.7), AsFloat(n)))),
    "quotient": TruncToInt(IntTrueDiv(n, sympy.Integer(3))),
    "products after each other": TruncToInt(
        FloatProduct(sympy.Float(20.0), FloatProduct(sympy.Float(0.15), AsFloat(n)))
    ),
}
COMPUTED = {
    "product": lambda n: int(0.3 * float(n)),
    "product rounded down": lambda n: int(0.15 * float(n)),
    "sum": lambda n: int(0.7 * float(n) - 1.5),
    "quotient": lambda n: int(n / 3),
    "products after each other": lambda n: int(float(n) * 0.15 * 20),
}
RELATIONS = {
    sympy.Ne: lambda a, b: a != b,
    sympy.Ge: lambda a, b: a >= b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Eq: lambda a, b: a == b,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_sizes_that_break_a_condition_are_those_of_python(name: str) -> None:
    for relation, holds in RELATIONS.items():
        for number in (0, 1, 2, 5, 26):
            found = sizes_that_break(relation(EXPRESSIONS[name], sympy.Integer(number)), {n: Range(0, None)})
            assert found is not None
            for size in range(300):
                is_broken = any(part.holds(size) for part in found)
                assert is_broken != holds(COMPUTED[name](size), number), (name, relation, number, size)
