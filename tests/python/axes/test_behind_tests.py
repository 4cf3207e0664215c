"""Tests on sizes behind tests on sizes: what the trace did not come to is right, or refused."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

from axes.test_size_tests import HalvedWhileBothAreLarge
from exportguard import OnnxModel, to_onnx
from exportguard.axes import bounds
from exportguard.errors import AxisError

_PROGRAMS = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS", "10"))
_LEAST = () if _PROGRAMS <= 10 else (4, 7)  # some orders of the many ways of these take a quarter of an hour

Test = Callable[[int, int], bool]


def random_test(chosen: random.Random) -> tuple[str, Test]:
    """A test on two sizes, and how it is written."""
    number, other = chosen.choice((2, 5, 9, 11, 37)), chosen.choice((2, 3, 7))
    text = chosen.choice(
        [
            "n > {0}",
            "m > {0}",
            "n == {0}",
            "m == {0}",
            "n % {1} == 0",
            "m % {1} == 1",
            "n + m > {0}",
            "n * {1} <= m",
            "n != m",
            "n // {1} == m // {1}",
            "n == 1",
            "m == 1",
            "min(n, m) > {0}",
            "n * m == {0}",
        ]
    ).format(number, other)
    return text, eval(f"lambda n, m: {text}")


class Nested(torch.nn.Module):
    """Asks for something only where something else was answered otherwise than at most sizes, or at the example's."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chosen = random.Random(seed)
        (first, self.first), (second, self.second), (third, self.third) = (random_test(chosen) for _ in range(3))
        self.shape = chosen.choice(("or", "and", "nested", "else", "chain", "three"))
        self.text = f"{self.shape}: {first} | {second} | {third}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, m = x.shape
        if self.shape == "or":
            return x * 2 if self.first(n, m) or self.second(n, m) else x
        if self.shape == "and":
            return x * 2 if self.first(n, m) and self.second(n, m) else x
        if self.shape == "nested":
            if self.first(n, m):
                return x.sum(0) if self.second(n, m) else x.cumsum(0)[-1]
            return x.sum(0)
        if self.shape == "else":
            if not self.first(n, m):
                x = x - 1 if self.second(n, m) else x
            return x
        if self.shape == "chain":
            for test in (self.first, self.second, self.third):
                if test(n, m):
                    return x + 1
            return x
        if self.first(n, m) and not self.second(n, m):
            return x * 3 if self.third(n, m) else x
        return x


def sizes_to_compare() -> Iterator[tuple[int, int]]:
    near = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 21, 36, 37, 38, 40)
    yield from ((n, m) for n in near for m in near if (n * 7 + m) % 3 == 0 or n == m or 37 in (n, m))


def converted(model: torch.nn.Module, example: tuple[int, int], rewrite: Any) -> OnnxModel | None:
    try:
        return to_onnx(model, (torch.randn(example),), dynamic_shapes=({0: "n", 1: "m"},), rewrite=rewrite)
    except AxisError:
        return None


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_tests_behind_tests_are_right_or_refused(seed: int, rewrite: Any) -> None:
    model = Nested(seed).eval()
    onnx = converted(model, ((3, 4), (6, 5), (12, 40))[seed % 3], rewrite)
    if onnx is None:
        return
    for n, m in sizes_to_compare():
        x = torch.randn(n, m)
        got = onnx.run({"x": x})[onnx.outputs[0].name]
        torch.testing.assert_close(got, model(x), msg=lambda text, at=(n, m): f"{model.text} at {at}: {text}")


class OneOfTwo(torch.nn.Module):
    """At almost all sizes that answer the first test otherwise the model does the same."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4 or x.shape[1] == 37:
            return x * 2
        return x


class BehindOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1 and x.shape[1] % 29 == 0:
            return x * 2
        return x


class BehindTwo(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4 and x.shape[1] > 50 and x.shape[0] % 3 == 0 and x.shape[1] % 2 == 0:
            return x * 2
        return x


@pytest.mark.parametrize(
    ("model", "sizes"),
    [(OneOfTwo(), (2, 37)), (BehindOne(), (1, 58)), (BehindTwo(), (9, 60))],
    ids=["or", "one", "two"],
)
def test_the_error_names_sizes_that_another_test_lies_behind(model: torch.nn.Module, sizes: tuple[int, int]) -> None:
    for example in ((8, 6), (3, 4)):
        onnx = converted(model.eval(), example, ())
        if onnx is not None:
            x = torch.randn(sizes)
            torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))


def test_the_order_in_which_questions_are_noted_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    guards, chosen = bounds._guards, random.Random(0)

    def shuffled(trace: Any) -> list[Any]:
        return sorted(guards(trace), key=lambda _: chosen.random())

    monkeypatch.setattr(bounds, "_guards", shuffled)
    for model in (OneOfTwo(), BehindOne(), BehindTwo()):
        for example in ((8, 6), (3, 4)):
            is_right_if_exported(
                model.eval(), converted(model.eval(), example, ()), ((2, 37), (1, 58), (9, 60), (1, 1))
            )
    for least in _LEAST:
        halved = HalvedWhileBothAreLarge(least).eval()
        shapes = ({0: "batch", 1: "rows", 2: "columns"},)
        try:
            onnx = to_onnx(halved, (torch.randn(1, 16, 16),), dynamic_shapes=shapes, rewrite="auto")
        except AxisError:
            continue
        is_right_if_exported(halved, onnx, ((2, 24, 40), (1, 40, 24), (3, 3, 9), (1, 64, 64)))


def is_right_if_exported(model: torch.nn.Module, onnx: OnnxModel | None, shapes: Iterable[tuple[int, ...]]) -> None:
    for shape in shapes if onnx is not None else ():
        x = torch.randn(shape)
        torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))


class BesideOne(torch.nn.Module):
    """Does something else from 77 on, behind a test whose other side has a test of a single entry."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        if n > 9 and n >= 77:
            return x * 2
        if n > 9:
            return x * 1
        if n == 1:
            x = x + 0
        return x * 1


class BesideFewer(torch.nn.Module):
    """The same of two axes, where a single entry of one leads to the test of the other."""

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        n, m = x.shape[0], z.shape[0]
        if m > 9 or n < 2:
            y = x * 2 if n == 77 else x
            return y + 0 * z.sum()
        return x + 0 * z.sum()


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("model", [BesideOne(), BesideFewer()])
def test_the_way_of_a_single_entry_is_that_of_no_other_size(model: torch.nn.Module, rewrite: Any) -> None:
    inputs = (torch.ones(5), torch.ones(3)) if isinstance(model, BesideFewer) else (torch.ones(5),)
    try:
        file = to_onnx(model.eval(), inputs, dynamic_shapes=({0: "n"}, {0: "m"})[: len(inputs)], rewrite=rewrite)
    except AxisError:
        assert not rewrite
        return
    for n in (1, 2, 9, 10, 76, 77, 200):
        for m in (1, 9, 10):
            given = (torch.ones(n), torch.ones(m))[: len(inputs)]
            (got,) = file.run(dict(zip("xz", given, strict=False))).values()
            torch.testing.assert_close(got, model(*given))
