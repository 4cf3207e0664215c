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
    "by a size": lambda n: 100_000 / n,
    "by a float of a size": lambda n: (3 * n * n + 1) / (n / 4),
}
UNKNOWN: dict[str, Formula] = {
    "a tenth": lambda n: 0.1 * n,
    "three thirds": lambda n: 3 * (n / 3),
    "two roundings": lambda n: n / 3 + n / 5,
    "rounded twice": lambda n: (n / 3) / 5,
    "by what is rounded": lambda n: n / (n / 3),
    "beside a quotient by a size": lambda n: 7 / n + n / 2,
    "by what may be 0": lambda n: n / (n - 2),
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


def test_quotients_of_two_sizes_have_the_whole_numbers_of_python() -> None:
    """Products of sizes and numbers, divided by others, as windows and experts are counted."""
    source = random.Random(7)
    known = 0
    for _ in range(200):
        a, b = symbolic_pair()
        above, below = factors(source), factors(source)
        name = source.choice(("floor", "ceil", "trunc"))
        found = whole_quotient(product(above, a, b) / product(below, a, b), name)
        known += found is not None
        for n, m in () if found is None else ((1, 1), (2, 3), (5, 7), (12, 9), (30, 64), (99, 1001), (4095, 6)):
            expression = sympy.sympify(found.node.expr if isinstance(found, torch.SymInt) else found)
            got = expression.xreplace({a.node.expr: sympy.Integer(n), b.node.expr: sympy.Integer(m)})
            assert got == _WHOLE[name](product(above, n, m) / product(below, n, m)), (above, below, n, m)
    assert known > 150


def symbolic_pair() -> tuple[torch.SymInt, torch.SymInt]:
    fake = torch._subclasses.FakeTensorMode(shape_env=ShapeEnv())
    return tuple(fake.from_tensor(torch.empty(9, 14)).shape)  # type: ignore[return-value]


def factors(source: random.Random) -> list[Any]:
    """Sizes by name, numbers to multiply with and powers of two to divide by; a size is there in any case."""
    return ["n", *source.choices(("n", "m", 3, 4, 1.25, 0.5, "/2", "/4"), k=source.randint(0, 3))]


def product(parts: list[Any], n: Any, m: Any) -> Any:
    found = 1
    for part in parts:
        by_name = {"n": n, "m": m}.get(part, part)
        found = found / int(part[1:]) if str(part).startswith("/") else found * by_name
    return found


class Windows(Module):
    """Windows of a picture and back, with the number of pictures made of floats."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x):
        size = self.size
        _, height, width, channels = x.shape
        right, below = (size - width % size) % size, (size - height % size) % size
        x = torch.nn.functional.pad(x, (0, 0, 0, right, 0, below))
        _, high, wide, _ = x.shape
        x = x.view(-1, high // size, size, wide // size, size, channels).permute(0, 1, 3, 2, 4, 5)
        windows = x.contiguous().view(-1, size * size, channels)
        pictures = int(windows.shape[0] / (high * wide / size / size))
        x = windows.view(pictures, high // size, wide // size, size, size, -1).permute(0, 1, 3, 2, 4, 5)
        x = x.contiguous().view(pictures, high, wide, -1).roll((1, 1), (1, 2))
        return x[:, :height, :width].contiguous() if right > 0 or below > 0 else x


@pytest.mark.parametrize("size", [4, 2])
def test_pictures_counted_by_their_windows(size: int) -> None:
    model = Windows(size).eval()
    shapes = ({0: "batch", 1: "height", 2: "width"},)
    onnx = to_onnx(model, (torch.randn(2, 9, 14, 3),), dynamic_shapes=shapes, rewrite="auto")
    for sizes in ((1, 9, 14), (2, 8, 8), (3, 4, 1), (2, 5, 17), (1, 1, 1), (5, 3, 33)):
        x = torch.randn(*sizes, 3)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


class Capacity(Module):
    """A number made of the product of two sizes, which is one of three factors."""

    def forward(self, x):
        return x.sum() + torch.zeros(int(1.25 * (x.shape[0] * x.shape[1]) / 4))


def test_a_capacity_of_two_sizes() -> None:
    shapes = ({0: "batch", 1: "seq"},)
    onnx = to_onnx(Capacity().eval(), (torch.randn(3, 8),), dynamic_shapes=shapes, rewrite="auto")
    for sizes in ((1, 1), (3, 8), (5, 7), (33, 9)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), Capacity()(x))


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
