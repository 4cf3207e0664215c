"""Sizes that a model rounds from a float: quotients with what is added to them, as in the lengths of convolutions."""

from __future__ import annotations

import math

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import CeilToInt, FloatTrueDiv, FloorToInt, IntTrueDiv, ToFloat, TruncToInt

from exportguard import to_onnx
from exportguard.axes.evaluation import Evaluation
from exportguard.axes.expressions import NotPolynomialError, Range, cases, periods, polynomial

N = sympy.Symbol("n", integer=True, positive=True)
HALF, ONE = sympy.Float(0.5), sympy.Float(1.0)
ROUNDED = {
    "up, with one": CeilToInt(IntTrueDiv(N - 4, 4) + ONE),
    "down, with one": FloorToInt(IntTrueDiv(N - 5, 2) + ONE),
    "truncated, with one": TruncToInt(IntTrueDiv(N + 5, 3) + ONE),
    "to the nearest": FloorToInt(IntTrueDiv(N, 3) + HALF),
    "half a quotient": CeilToInt(HALF * IntTrueDiv(N, 3) - sympy.Float(0.25)),
    "a quarter of a size": FloorToInt(sympy.Float(0.25) * ToFloat(N)),
    "a quotient and a size": CeilToInt(IntTrueDiv(N, 2) + ToFloat(N) + HALF),
    "by a step of minus one": CeilToInt(FloatTrueDiv(ToFloat(-N), -ONE)),
    "by a step of a half": CeilToInt(FloatTrueDiv(ToFloat(N - 3), HALF)),
    "by a step of minus two": FloorToInt(FloatTrueDiv(ToFloat(5 - N), sympy.Float(-2.0))),
    "by a step of one and a half": CeilToInt(FloatTrueDiv(ToFloat(N) + sympy.Float(0.25), sympy.Float(1.5))),
    "by a step, with a half": FloorToInt(FloatTrueDiv(ToFloat(N), sympy.Float(3.0)) + HALF),
    "a rounded one in another": CeilToInt(IntTrueDiv(CeilToInt(IntTrueDiv(N - 1, 2) + ONE) - 2, 2) + ONE),
}


def values(expression: sympy.Basic, step: int) -> dict[int, int]:
    """What the proof takes an expression for, by size."""
    found = {}
    for case in cases({N: step}, {N: Range(low=1)}):
        known = polynomial(expression, case)
        for k in range(5):
            found[case.values[N].at("t0", k).offset] = known.at("t0", k).offset
    return found


@pytest.mark.parametrize("name", ROUNDED)
def test_what_is_rounded_is_known_for_every_size(name: str) -> None:
    compute = Evaluation(ROUNDED[name], [N])
    found = values(ROUNDED[name], periods(ROUNDED[name], N)[-1])
    assert found == {size: compute({N: size}) for size in found}


def test_a_negative_quotient_is_truncated_towards_zero() -> None:
    expression = TruncToInt(IntTrueDiv(N - 8, 4))
    with pytest.raises(NotPolynomialError, match="either sign"):
        values(expression, 4)
    below = next(cases({N: 4}, {N: Range(low=5, high=5)}))
    assert polynomial(expression, below).at("t0", 0).offset == 0


@pytest.mark.parametrize(
    "expression",
    [
        FloorToInt(sympy.Float(0.1) * ToFloat(N)),
        CeilToInt(IntTrueDiv(N, 3) + IntTrueDiv(N, 7)),
        FloorToInt(IntTrueDiv(N, 3) + sympy.Float(0.3)),
        CeilToInt(FloatTrueDiv(ToFloat(N), sympy.Float(0.1))),
        CeilToInt(FloatTrueDiv(IntTrueDiv(N, 7), sympy.Float(3.0))),
    ],
    ids=str,
)
def test_what_floats_round_on_the_way_is_not_known(expression: sympy.Basic) -> None:
    with pytest.raises(NotPolynomialError):
        values(expression, 210)


class WholeWindows(torch.nn.Module):
    """Convolutions behind pads that make the last window whole, as audio codecs have them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Conv1d(1, 1, 2 * stride + 1, stride) for stride in (1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            assert isinstance(layer, torch.nn.Conv1d)
            width, stride, length = layer.kernel_size[0], layer.stride[0], x.shape[-1]
            inner = width - stride
            windows = (length - width + inner) / stride + 1
            missing = (math.ceil(windows) - 1) * stride + stride - length
            left, right = inner - inner // 2, inner // 2 + missing
            assert left >= 0
            assert right >= 0
            x = layer(functional.pad(x, (left, right)))
        return x


def test_a_pad_up_to_a_whole_window_holds_for_every_length() -> None:
    torch.manual_seed(0)
    module = WholeWindows().eval()
    example = torch.randn(2, 1, 64)
    model = to_onnx(module, (example,), dynamic_shapes=({0: "batch", 2: "length"},))
    assert all(axis.kept and not axis.guard for axis in model.axes)
    (name,) = (value.name for value in model.inputs)
    for batch, length in [(2, 64), (1, 131), (3, 77), (1, 9), (2, 1), (1, 2), (1, 3)]:
        x = torch.randn(batch, 1, length)
        (got,) = model.run({name: x}).values()
        torch.testing.assert_close(got, module(x), atol=1e-5, rtol=1e-5)


class Numbered(torch.nn.Module):
    """Places that are counted in floats, as those of sinusoids, and written to a table of as many rows."""

    def __init__(self, start: str, end: str, step: float, rows: str) -> None:
        super().__init__()
        self.start, self.end, self.step, self.rows = start, end, step, rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start, end, rows = (eval(text, {"n": x.size(0)}) for text in (self.start, self.end, self.rows))
        table = torch.zeros(rows, 4)
        table[:, 0] = torch.arange(start, end, self.step)
        return table + x.sum()


@pytest.mark.parametrize(
    ("start", "end", "step", "rows"),
    [
        ("n - 1", "-1", -1.0, "n"),
        ("0", "n", 1.0, "n"),
        ("0", "n", 0.5, "2 * n"),
        ("0", "2 * n", 2.0, "n"),
        ("n", "0", -0.5, "2 * n"),
        ("0.25", "n + 0.25", 1.0, "n"),
        ("0", "3 * n", 1.5, "2 * n"),
        ("-n", "n", 1.0, "2 * n"),
    ],
)
def test_places_that_are_counted_in_floats(start: str, end: str, step: float, rows: str) -> None:
    model = Numbered(start, end, step, rows).eval()
    onnx = to_onnx(model, (torch.randn(6, 3),), dynamic_shapes=({0: "n"},))
    for size in (1, 2, 7, 13):
        x = torch.randn(size, 3)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))
