"""Axes that a model asks to be equal, some for an operator that needs it, some in a test that it goes on behind.

A file whose axes are one for a test alone would do at other sizes what the model does not, so it is refused; which of
the equalities is asked for by whom is only seen at sizes where all others hold.

`python test_relations_of_axes.py 200` checks as many models and prints how many are right, refused and wrong.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from exportguard import ExportGuardError, to_onnx

_INPUTS = 4
_DRAW = torch.Generator().manual_seed(0)
_ROWS = {length: [torch.randn(2, length, 3, generator=_DRAW) for _ in range(_INPUTS)] for length in (1, 3, 4, 5)}


class Step(NamedTuple):
    """What is done with two of the inputs."""

    name: str
    one: int
    other: int


def _tested(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x.sin() if a.shape[1] != b.shape[1] else x


STEPS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "add": lambda x, a, b: x + (a + b).mean(1),
    "multiply": lambda x, a, b: x + (a * b).amax(1),
    "attend": lambda x, a, b: x + (a.transpose(1, 2) @ b).sum(1),
    "test": _tested,
    "test again": lambda x, a, b: x * 2 if a.shape[1] == b.shape[1] else x + 1,
}


class Compares(torch.nn.Module):
    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        rows = (a, b, c, d)
        x = rows[0].sum(1) + rows[1].sum(1) + rows[2].amax(1) + rows[3].amin(1)
        for step in self.steps:
            x = STEPS[step.name](x, rows[step.one], rows[step.other])
        return x


def steps_of(seed: int) -> list[Step]:
    draw = random.Random(seed)
    return [Step(draw.choice([*STEPS]), *draw.sample(range(_INPUTS), 2)) for _ in range(draw.randint(1, 5))]


def taken_otherwise(model: Compares) -> bool:
    """Whether the model takes sizes at which one of its tests is answered otherwise than in the example."""
    tests = [step for step in model.steps if step.name.startswith("test")]
    ways = itertools.product((1, 3, 4), repeat=_INPUTS)
    return any(_takes(model, way) for way in ways if any(way[step.one] != way[step.other] for step in tests))


def _takes(model: Compares, lengths: Sequence[int]) -> bool:
    try:
        model(*(_ROWS[length][place] for place, length in enumerate(lengths)))
    except RuntimeError:
        return False
    return True


def check(seed: int, shapes: Sequence[Any]) -> bool:
    """Whether the model of a seed is exported; then it is right at all sizes that the model takes."""
    model = Compares(steps_of(seed)).eval()
    try:
        converted = to_onnx(model, tuple(_ROWS[5]), dynamic_shapes=tuple(shapes))
    except ExportGuardError:
        assert taken_otherwise(model), f"refused without need: {model.steps}"
        return False
    for lengths in itertools.product((1, 3, 4), repeat=_INPUTS):
        given = [_ROWS[length][place] for place, length in enumerate(lengths)]
        try:
            expected = model(*given)
        except RuntimeError:
            continue
        try:
            (got,) = converted.run(dict(zip("abcd", given, strict=True))).values()
        except RuntimeError:
            assert 1 in lengths, f"{model.steps} stops at {lengths}"  # a single entry, which would be broadcast
            continue
        torch.testing.assert_close(got, expected, msg=f"{model.steps} at {lengths}")
    return True


UNNAMED = [{1: Dim.DYNAMIC}] * _INPUTS


NAMED = [{1: name} for name in "pqrs"]


@pytest.mark.parametrize("shapes", [UNNAMED, NAMED], ids=["unnamed", "named"])
@pytest.mark.parametrize("first", range(0, 40, 8))
def test_axes_are_one_where_an_operator_needs_it(first: int, shapes: Sequence[Any]) -> None:
    outcomes = [check(seed, shapes) for seed in range(first, first + 8)]
    assert {*outcomes} == {True, False}


@pytest.mark.parametrize(
    "steps",
    [
        [Step("add", 0, 1), Step("add", 2, 3), Step("test", 0, 2)],
        [Step("test", 0, 2), Step("add", 0, 1), Step("add", 2, 3)],
        [Step("add", 0, 1), Step("test", 1, 2), Step("test", 0, 3)],
        [Step("add", 0, 1), Step("test", 1, 2), Step("add", 2, 3)],
        [Step("add", 2, 3), Step("test", 0, 1), Step("add", 0, 2)],
    ],
)
def test_a_test_of_axes_is_refused_where_the_model_goes_on_behind_it(steps: list[Step]) -> None:
    with pytest.raises(ExportGuardError, match="does something else than the model"):
        to_onnx(Compares(steps).eval(), tuple(_ROWS[5]), dynamic_shapes=tuple(UNNAMED))


def _rows(value: Tensor) -> int:
    return value.shape[1]


#: What is made of `x` by models of `a` and `b` of five rows, and `c` and `d` of ten.
OF_SUMS: Mapping[str, Callable[..., Tensor]] = {
    "a sum, behind": lambda x, a, b, c, d: _else(x + (c + d).mean(1), _rows(a) + _rows(b) == _rows(c)),
    "a sum, before": lambda x, a, b, c, d: _else(x, _rows(a) + _rows(b) == _rows(c)) + (c + d).mean(1),
    "a double, behind": lambda x, a, b, c, d: _else(x + (a + b).mean(1), 2 * _rows(a) == _rows(c)),
    "a double, before": lambda x, a, b, c, d: _else(x, 2 * _rows(a) == _rows(c)) + (a + b).mean(1) + (c + d).mean(1),
    "joined, behind": lambda x, a, b, c, d: _else(x + (torch.cat([a, b], 1) + d).mean(1), _rows(c) == _rows(d)),
    "joined, before": lambda x, a, b, c, d: _else(x, _rows(c) == _rows(d)) + (torch.cat([a, b], 1) + d).mean(1),
    "joined with itself": lambda x, a, b, c, d: _else(x + (torch.cat([a, a], 1) + d).mean(1), _rows(a) == _rows(b)),
    "parts of a sum": lambda x, a, b, c, d: _else(x + (torch.cat([a, b], 1) + d).mean(1), _rows(a) == _rows(b)),
    "a difference": lambda x, a, b, c, d: _else(x + (c + d).mean(1), _rows(c) - _rows(a) == _rows(b)),
    "a sum of three": lambda x, a, b, c, d: _else(x + (a + b).mean(1), _rows(a) + _rows(b) + _rows(c) == 2 * _rows(d)),
}
UNTESTED: Mapping[str, Callable[..., Tensor]] = {
    "a sum": lambda x, a, b, c, d: x + (torch.cat([a, b], 1) + c).mean(1) + (c + d).mean(1),
    "what is known": lambda x, a, b, c, d: _else(
        x + (torch.cat([a, b], 1) + c).mean(1) + (c + d).mean(1), _rows(a) + _rows(b) == _rows(d)
    ),
}


def _else(x: Tensor, is_equal: bool) -> Tensor:
    return x if is_equal else x.sin()


class Sums(torch.nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return self.function(a.sum(1) + b.sum(1) + c.amax(1) + d.amin(1), a, b, c, d)


def _of_ten() -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, length, 3) for length in (5, 5, 10, 10))


@pytest.mark.parametrize("name", OF_SUMS)
def test_a_test_of_sums_of_axes_is_refused_where_the_model_goes_on_behind_it(name: str) -> None:
    with pytest.raises(ExportGuardError, match="does something else than the model"):
        to_onnx(Sums(OF_SUMS[name]).eval(), _of_ten(), dynamic_shapes=tuple(UNNAMED))


@pytest.mark.parametrize("name", UNTESTED)
def test_sums_of_axes_that_operators_need_are_kept(name: str) -> None:
    model = Sums(UNTESTED[name]).eval()
    converted = to_onnx(model, _of_ten(), dynamic_shapes=tuple(UNNAMED))
    for one, other in itertools.product((2, 3, 6), repeat=2):
        given = [torch.randn(2, length, 3) for length in (one, other, one + other, one + other)]
        (got,) = converted.run(dict(zip("abcd", given, strict=True))).values()
        torch.testing.assert_close(got, model(*given))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(int(sys.argv[1])):
        try:
            counts["right" if check(seed, UNNAMED) else "refused"] += 1
        except Exception as error:
            counts["wrong"] += 1
            sys.stdout.write(f"{seed}: {steps_of(seed)}: {next(iter(str(error).splitlines()), '')}\n")
    sys.stdout.write(f"{dict(sorted(counts.items()))}\n")
