"""Whole numbers that Python makes of quotients of a size: sizes again, and the same ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import Conv1d, Module

from exportguard import to_onnx
from exportguard.rewrites.quotients import whole_quotient

Formula = Callable[[Any], Any]
_WHOLE = {"trunc": int, "floor": math.floor, "ceil": math.ceil}

KNOWN: dict[str, Formula] = {
    "a convolution": lambda n: (n + 2 * 3 - 5 - 1) / 4 + 1,
    "two quotients": lambda n: (n / 2 + 1) / 4,
    "halves": lambda n: n * 0.5 + 1.5,
    "a capacity": lambda n: 1.25 * n / 3,
    "nearest": lambda n: n / 7 + 0.5,
    "an area": lambda n: n * n / 12,
    "a float": lambda n: float(3) * n / 8,
    "scaled": lambda n: 4 * (n / 10) - 1,
    "a quotient of whole numbers": lambda n: (n // 3 + 1) / 2 + 2,
}
UNKNOWN: dict[str, Formula] = {
    "a tenth": lambda n: 0.1 * n,
    "three thirds": lambda n: 3 * (n / 3),
    "two roundings": lambda n: n / 3 + n / 5,
    "rounded twice": lambda n: (n / 3) / 5,
    "by a size": lambda n: 100 / n,
}


def symbolic(size: int = 9) -> torch.SymInt:
    env = ShapeEnv()
    fake = torch._subclasses.FakeTensorMode(shape_env=env)
    return fake.from_tensor(torch.empty(size)).shape[0]  # type: ignore[return-value]


def quotient(formula: Formula, name: str) -> Callable[[int], int] | None:
    """What `whole_quotient` makes of a formula, as a function of the size."""
    n = symbolic()
    found = whole_quotient(formula(n), name)
    if found is None:
        return None
    expression: Any = found.node.expr if isinstance(found, torch.SymInt) else sympy.Integer(found)
    return lambda size: int(expression.xreplace({n.node.expr: sympy.Integer(size)}))


@pytest.mark.parametrize("name", ["floor", "ceil"])
@pytest.mark.parametrize("formula", KNOWN.values(), ids=KNOWN)
def test_a_whole_number_of_a_quotient_is_that_of_python(formula: Formula, name: str) -> None:
    known = quotient(formula, name)
    assert known is not None
    for size in (*range(2, 150), 4095, 16000, 480_001):
        assert known(size) == _WHOLE[name](formula(size)), size


@pytest.mark.parametrize("formula", UNKNOWN.values(), ids=UNKNOWN)
def test_what_python_rounds_twice_is_no_quotient(formula: Formula) -> None:
    assert quotient(formula, "floor") is None


def test_a_number_that_may_be_negative_is_cut_at_its_point_by_torch() -> None:
    assert quotient(lambda n: (n - 8) / 3, "trunc") is None
    cut = quotient(lambda n: (n + 1) / 3, "trunc")
    assert cut is not None
    assert [cut(size) for size in (2, 3, 5)] == [1, 1, 2]


def drawn(source: random.Random, depth: int) -> Formula:
    """A formula of divisions, sums and products with numbers."""
    if depth == 0:
        return lambda n: n
    inner = drawn(source, depth - 1)
    number = source.choice((1, 2, 3, 4, 5, 8, 10, 0.5, 1.25, 2.0, 3.0, 0.1))
    kind = source.randrange(5)
    return (
        lambda n: inner(n) / number,
        lambda n: inner(n) * number,
        lambda n: inner(n) + number,
        lambda n: inner(n) - number,
        lambda n: inner(n) + n / 4,
    )[kind]


def test_formulas_drawn_at_random_have_the_whole_numbers_of_python() -> None:
    source = random.Random(5)
    known = 0
    for _ in range(150):
        formula, name = drawn(source, source.randint(1, 4)), source.choice(("floor", "ceil"))
        if isinstance(formula(symbolic()), torch.SymInt):
            continue
        found = quotient(formula, name)
        known += found is not None
        for size in () if found is None else (2, 3, 5, 6, 7, 10, 30, 99, 100, 1001, 65_537):
            assert found(size) == _WHOLE[name](formula(size)), size
    assert known > 50


class Frames(Module):
    """Asks whether the frames that it counts are those that its layers make, as codecs of sound do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Conv1d(1, 2, 4, 2, 1), Conv1d(2, 2, 6, 3, 1), Conv1d(2, 1, 3, 1, 1)])

    def count(self, length):
        for layer in self.layers:
            length = int((length + 2 * layer.padding[0] - (layer.kernel_size[0] - 1) - 1) / layer.stride[0] + 1)
        return length

    def forward(self, x):
        frames = x
        for layer in self.layers:
            frames = layer(frames)
        if self.count(x.shape[-1]) != frames.shape[-1]:
            return frames * 0
        return frames + torch.arange(self.count(x.shape[-1]))


def test_frames_that_are_counted_in_floats_are_those_of_the_layers() -> None:
    model = Frames().eval()
    onnx = to_onnx(model, (torch.randn(1, 1, 40),), dynamic_shapes=({2: "samples"},), rewrite="auto")
    assert all(axis.kept for axis in onnx.axes)
    assert " If(" not in onnx.text()
    for samples in (12, 41, 77, 96):
        x = torch.randn(1, 1, samples)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
