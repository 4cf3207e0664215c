"""Random programs that ask for three sizes, one test behind the other: what the report calls kept is right."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from exportguard import OnnxModel, to_onnx

_PROGRAMS = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS", "8"))
_BATCHES, _LENGTHS = (1, 2, 5), (1, 2, 3, 4, 7, 13, 17)

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Test = Callable[[torch.Tensor, torch.Tensor], bool]


def random_test(chosen: random.Random) -> Test:
    c, r = chosen.choice((1, 2, 3, 4, 5, 7, 8, 16)), chosen.randrange(3)
    return chosen.choice(
        [
            lambda x, y: y.shape[1] > x.shape[1],
            lambda x, y: y.shape[1] > x.shape[1] + c,
            lambda x, y: y.shape[1] + x.shape[1] > c,
            lambda x, y: y.shape[1] * x.shape[1] > c,
            lambda x, y: y.shape[1] > c or x.shape[1] > c,
            lambda x, y: y.shape[1] == 1 or x.shape[1] == 1,
            lambda x, y: y.shape[1] == 1 and x.shape[1] > r,
            lambda x, y: x.shape[0] * y.shape[1] > c,
            lambda x, y: x.shape[0] == 1 and y.shape[1] == 1,
            lambda x, y: min(x.shape[1], y.shape[1]) > r,
            lambda x, y: max(x.shape[0], x.shape[1], y.shape[1]) > c,
            lambda x, y: y.shape[1] != x.shape[1],
            lambda x, y: x.shape[1] == 1,
            lambda x, y: y.shape[1] == 1,
            lambda x, y: x.shape[0] == 1,
            lambda x, y: (x.shape[1] + y.shape[1]) % 2 == 0,
            lambda x, y: y.shape[1] % x.shape[1] == 0,
            lambda x, y: x.shape[0] == y.shape[1],
            lambda x, y: x.shape[0] + x.shape[1] + y.shape[1] > c,
        ]
    )


def simple_step(chosen: random.Random) -> Step:
    c = chosen.choice((1, 2, 3, 4, 5, 7, 8, 16))
    return chosen.choice(
        [
            lambda x, y: x * 2,
            lambda x, y: x + y.mean(-1, keepdim=True),
            lambda x, y: torch.cat([x, y[:, :c]], 1),
            lambda x, y: x + y.sum(1, keepdim=True) * c,
            lambda x, y: x[:, : c + 1],
            lambda x, y: x * (y.shape[1] / c),
            lambda x, y: x + x.mean(-1, keepdim=True),
            lambda x, y: x + y[:, -1:],
            lambda x, y: torch.cat([x, y], 1),
            lambda x, y: x + x.shape[0],
            lambda x, y: x * x.shape[1],
            lambda x, y: x.cumsum(1),
        ]
    )


def random_step(chosen: random.Random) -> Step:
    one, two, three = (simple_step(chosen) for _ in range(3))
    test, inner, kind = random_test(chosen), random_test(chosen), chosen.random()
    if kind < 0.25:
        return one
    if kind < 0.6:
        return lambda x, y: one(x, y) if test(x, y) else two(x, y)
    if kind < 0.8:
        return lambda x, y: one(x, y) if test(x, y) else (two(x, y) if inner(x, y) else three(x, y))
    return lambda x, y: (two(x, y) if inner(x, y) else three(x, y)) if test(x, y) else one(x, y)


class Program(torch.nn.Module):
    """A step or two after each other."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chosen = random.Random(seed)
        self.steps = [random_step(chosen) for _ in range(chosen.randint(1, 2))]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x, y)
        return x


class OneStep(torch.nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.step(x, y)


def rows(batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, length, generator=torch.Generator().manual_seed(batch * 100 + length))


def converted(program: torch.nn.Module, batch: int, seq: int, other: int) -> OnnxModel:
    shapes = {"x": {0: "batch", 1: "seq"}, "y": {0: "batch", 1: "other"}}
    inputs = rows(batch, seq), rows(batch, other)
    return to_onnx(program.eval(), inputs, dynamic_shapes=shapes, on_fixed_axis="warn", rewrite="auto")


def expected(program: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """What the model returns; None if it does not take the inputs."""
    try:
        result: torch.Tensor = program(x, y)
    except (RuntimeError, ValueError):
        return None
    return result


def require_right(program: torch.nn.Module, model: OnnxModel, batch: int, seq: int, other: int) -> None:
    x, y = rows(batch, seq), rows(batch, other)
    want = expected(program, x, y)
    if want is not None:
        (got,) = model.run({"x": x, "y": y}).values()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, msg=lambda text: f"{batch, seq, other}: {text}")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_what_is_kept_is_right_at_every_size(seed: int) -> None:
    program, given = Program(seed), (2, (6, 7, 16)[seed % 3], (4, 9, 6)[seed % 3])
    if expected(program, rows(*given[:2]), rows(given[0], given[2])) is None:
        return
    model = converted(program, *given)
    batch, seq, _, other = (axis.kept for axis in model.axes)
    for sizes in (
        (b, s, o)
        for b in (_BATCHES if batch else given[:1])
        for s in (_LENGTHS if seq else given[1:2])
        for o in (_LENGTHS if other else given[2:])
        if seq or other
    ):
        require_right(program, model, *sizes)


def alone_in_its_region(x: torch.Tensor, y: torch.Tensor) -> Any:
    if x.shape[1] == 1:
        return x[:, :3]
    return x + y.mean(-1, keepdim=True) if (x.shape[1] + y.shape[1]) % 2 == 0 else x + y[:, -1:]


def two_that_are_one(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x + x.mean(-1, keepdim=True) if x.shape[0] == 1 and y.shape[1] == 1 else x * 2


def a_corner(x: torch.Tensor, y: torch.Tensor) -> Any:
    if y.shape[1] + x.shape[1] > 16:
        return x[:, :5] if x.shape[0] * y.shape[1] > 7 else x.cumsum(1)
    return x[:, :5]


def fewer_than_cut(x: torch.Tensor, y: torch.Tensor) -> Any:
    if y.shape[1] != x.shape[1]:
        return (x[:, :2] if x.shape[0] == 1 else x + x.shape[0]) + y[:, :1]
    return x + y.sum(1, keepdim=True) + y[:, :1]


def equal_and_one(x: torch.Tensor, y: torch.Tensor) -> Any:
    if x.shape[0] == y.shape[1]:
        x = x * x.shape[1]
    return x + y.sum(1, keepdim=True) * 8 if x.shape[0] + x.shape[1] + y.shape[1] > 3 else torch.cat([x, y], 1)


def luck_at_the_least(x: torch.Tensor, y: torch.Tensor) -> Any:
    if y.shape[1] == 1 or x.shape[1] == 1:
        return x * x.shape[1]
    return x * (y.shape[1] / 8) if y.shape[1] * x.shape[1] > 7 else x + y.mean(-1, keepdim=True)


def few_in_its_region(x: torch.Tensor, y: torch.Tensor) -> Any:
    if y.shape[1] * x.shape[1] > 5:
        return x + y.mean(-1, keepdim=True)
    return x * 2 if y.shape[1] == 1 and x.shape[1] > 2 else x + y[:, -1:]


def larger_in_its_region(x: torch.Tensor, y: torch.Tensor) -> Any:
    if (y.shape[1] // 16) % 2 == 0:
        return x.new_ones(x.shape[0], max(y.shape[1] - 7, 1))[:, :5] if x.shape[0] == 1 else x.new_ones(x.shape[0], 1)
    return x * 2


@pytest.mark.parametrize(
    ("step", "given", "others"),
    [
        (alone_in_its_region, (2, 7, 9), [(1, 1, 2), (2, 1, 3), (2, 1, 6)]),
        (two_that_are_one, (2, 6, 4), [(1, 2, 1), (1, 5, 1), (1, 5, 2), (3, 5, 1)]),
        (a_corner, (2, 7, 9), [(1, 13, 4), (2, 15, 2), (2, 15, 3), (1, 15, 8)]),
        (fewer_than_cut, (2, 7, 9), [(1, 1, 2), (1, 2, 1), (1, 5, 7), (2, 1, 5)]),
        (equal_and_one, (2, 16, 6), [(1, 1, 1), (1, 2, 1), (2, 1, 2), (3, 4, 1)]),
        (few_in_its_region, (2, 6, 4), [(1, 3, 1), (2, 5, 1), (1, 2, 1), (2, 1, 5), (1, 6, 1)]),
        (larger_in_its_region, (2, 6, 4), [(1, 3, 9), (1, 3, 12), (1, 3, 17), (2, 3, 9), (1, 2, 33)]),
        (luck_at_the_least, (2, 6, 4), [(1, 1, 13), (2, 1, 8), (2, 1, 17), (2, 13, 1)]),
    ],
)
def test_what_is_asked_behind_another_test(
    step: Step, given: tuple[int, int, int], others: list[tuple[int, int, int]]
) -> None:
    program = OneStep(step)
    model = converted(program, *given)
    is_kept = all(axis.kept for axis in model.axes)
    assert is_kept or step in (equal_and_one, few_in_its_region), "one axis for two, and too many ways, are refused"
    for sizes in others if is_kept else ():
        require_right(program, model, *sizes)
