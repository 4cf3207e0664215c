"""Tests of what Python's floats make of a size, `if math.sqrt(n) > 3`, become branches as those of whole numbers do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloatPow, ToFloat, TruncToFloat, make_opaque_unary_fn

from exportguard import to_onnx
from exportguard.axes.evaluation import Evaluation

_FORMS: dict[str, Callable[[int, float], float]] = {
    "a product": lambda n, c: n * c,
    "a quotient": lambda n, c: n / (c + 1),
    "a root": lambda n, c: math.sqrt(n) + c,
    "a power": lambda n, c: n**0.5 - c,
    "a logarithm": lambda n, c: math.log(n + c),
    "a float": lambda n, c: n * 1.0 - c,
    "a share": lambda n, c: n * c + n / 4,
    "a size": lambda n, c: n,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "below": lambda a, b: a < b,
    "at most": lambda a, b: a <= b,
    "above": lambda a, b: a > b,
    "at least": lambda a, b: a >= b,
}
_SIZES = range(1, 13)


class OfAFloat(torch.nn.Module):
    """Two ways, by what a form makes of the number of rows."""

    def __init__(self, form: str, comparison: str, numbers: tuple[float, float]) -> None:
        super().__init__()
        self.form, self.comparison = form, comparison
        self.factor, self.bound = numbers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _COMPARISONS[self.comparison](_FORMS[self.form](x.shape[0], self.factor), self.bound):
            return x * 2
        return x - x.mean(0)


@pytest.mark.parametrize("comparison", _COMPARISONS)
@pytest.mark.parametrize("form", _FORMS)
def test_what_floats_of_a_size_decide_is_a_branch(form: str, comparison: str) -> None:
    chosen = random.Random(form + comparison)
    factor = chosen.choice((0.3, 0.5, 1.25, 1.7))
    bound = _FORMS[form](chosen.randint(2, 9), factor) + chosen.choice((0.25, -0.25))
    model = OfAFloat(form, comparison, (factor, bound)).eval()
    onnx = to_onnx(model, (torch.randn(4, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert all(axis.kept for axis in onnx.axes)
    for rows in _SIZES:
        x = torch.randn(rows, 3)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


def test_floats_of_sizes_have_the_value_of_pythons() -> None:
    s = sympy.Symbol("s0", integer=True, positive=True)
    root = make_opaque_unary_fn("sqrt")(ToFloat(s))
    for expression, wanted in (
        (root, math.sqrt),
        (FloatPow(ToFloat(s), sympy.Float(0.5)), lambda n: n**0.5),
        (TruncToFloat(ToFloat(s) * sympy.Float(0.75)), lambda n: float(math.trunc(n * 0.75))),
    ):
        evaluation = Evaluation(expression, [s])
        assert [evaluation({s: size}) for size in _SIZES] == [wanted(size) for size in _SIZES]
