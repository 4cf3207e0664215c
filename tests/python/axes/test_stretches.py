"""Operators that are run together do what they do one by one, whatever stands between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exportguard.axes.compiled_calls import Stretch
from exportguard.axes.traced_program import TracedProgram
from exportguard.axes.true_shapes import GraphWithTrueShapes, OtherShapeError, Reading
from exportguard.devices import same_random_numbers
from exportguard.inputs import CallInputs

Step = Callable[[list[torch.Tensor], random.Random], torch.Tensor]


def _cond(values: list[torch.Tensor], draw: random.Random) -> torch.Tensor:
    x = values[-1]
    return torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() * 2, (x,))  # type: ignore[no-any-return]


def _written(values: list[torch.Tensor], draw: random.Random) -> torch.Tensor:
    copy = draw.choice(values).clone()
    copy[:, draw.randrange(2)] += 1
    return copy


def _sizes(values: list[torch.Tensor], draw: random.Random) -> torch.Tensor:
    x = draw.choice(values)
    return x + torch.arange(x.shape[0] * 2)[: x.shape[0], None] / (x.shape[0] + 1)


#: Each takes values of n x 4 numbers, and gives some.
STEPS: dict[str, Step] = {
    "elements": lambda values, draw: draw.choice(values).tanh() + draw.choice(values),
    "a number": lambda values, draw: draw.choice(values) * draw.choice((2, 0.5)),
    "a sum": lambda values, draw: values[-1] - values[-1].mean(-1, keepdim=True),
    "a turn": lambda values, draw: (values[0].t() @ draw.choice(values)).softmax(-1)[draw.choice(values).argmax(-1)],
    "parts": lambda values, draw: torch.cat(draw.choice(values).split(2, -1)[::-1], -1),
    "one of parts": lambda values, draw: torch.cat([draw.choice(values).chunk(4, -1)[1]] * 4, -1),
    "extremes": lambda values, draw: draw.choice(values).sort(0)[0].relu(),
    "random numbers": lambda values, draw: draw.choice(values) + torch.rand_like(draw.choice(values)),
    "dropped": lambda values, draw: torch.nn.functional.dropout(draw.choice(values), 0.5),
    "a branch": _cond,
    "what is written": _written,
    "sizes": _sizes,
    "what data choose": lambda values, draw: draw.choice(values) + values[-1][values[-1] > 0].sum(),
}  # fmt: skip


class Drawn(torch.nn.Module):
    """Steps one after the other, of which the last values are returned."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        names = [name for name in STEPS if draw.random() < 0.5] or ["a sum"]
        self.steps = [draw.choice([*names, "elements", "a number"]) for _ in range(draw.randrange(3, 25))]
        self.seed = seed

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Values, the last of which is that of the last step."""
        draw, values = random.Random(self.seed), [x]
        for step in self.steps:
            values.append(STEPS[step](values, draw))
        return values[-3:]


class _OneByOne(GraphWithTrueShapes):
    runs_stretches = False


def _program(model: torch.nn.Module, x: torch.Tensor, *, is_dynamic: bool = True) -> tuple[TracedProgram, Any]:
    rows = torch.export.Dim.DYNAMIC if is_dynamic else None
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: rows},), strict=False)
    program = TracedProgram(exported)
    symbols = program.inputs.sizes[0]
    return program, symbols[0]


@pytest.mark.parametrize("block", range(6))
def test_both_ways_return_the_same(block: int) -> None:
    together = 0
    for seed in range(12 * block, 12 * block + 12):
        torch.manual_seed(seed)
        program, symbol = _program(Drawn(seed), torch.randn(5, 4))
        for rows in (5, 7, 2, 11):
            given = CallInputs((torch.randn(rows, 4),))
            with same_random_numbers():
                expected = program.run(given, {symbol: rows}, _OneByOne)
            with same_random_numbers():
                got = program.run(given, {symbol: rows})
            assert len(got) == len(expected)
            assert all(map(torch.equal, got, expected)), Drawn(seed).steps
        together += sum(isinstance(step, Stretch) for steps in _reading(program).steps.values() for step in steps)
    assert together > 6


def _reading(program: TracedProgram) -> Reading:
    return program._blocks.reading


class _Fixed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2 + 1).exp().neg() + torch.ones(5, 1)


def test_a_shape_that_is_other_than_traced_is_told_as_where_they_are_run_one_by_one() -> None:
    program, _ = _program(_Fixed(), torch.randn(5, 4), is_dynamic=False)
    told = []
    for kind in (None, None, _OneByOne):
        with pytest.raises(OtherShapeError, match=r"has the shape \[1, 4\] and was traced as \[5, 4\]") as error:
            program.run(CallInputs((torch.randn(1, 4),)), {}, kind)
        told.append(str(error.value))
    assert len({*told}) == 1
    assert any(isinstance(step, Stretch) for steps in _reading(program).steps.values() for step in steps)


def test_what_an_operator_raises_is_raised() -> None:
    program, _ = _program(_Fixed(), torch.randn(5, 4), is_dynamic=False)
    for _ in range(3):
        with pytest.raises((RuntimeError, OtherShapeError)):
            program.run(CallInputs((torch.randn(3, 4, dtype=torch.float64).to_sparse(),)), {})


def test_a_run_holds_no_more_than_is_needed() -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(9):
                x = x.sin() + 1
            return x

    program, symbol = _program(Chain(), torch.randn(5, 4))
    leaves = pytree.tree_leaves(
        [program.run(CallInputs((torch.randn(rows, 4),)), {symbol: rows}) for rows in (5, 6, 7)]
    )
    assert [len(leaf) for leaf in leaves] == [5, 6, 7]
    (steps,) = _reading(program).steps.values()
    (stretch,) = [step for step in steps if isinstance(step, Stretch)]
    assert len(stretch._wanted) == 1
