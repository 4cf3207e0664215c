"""Branches and loops of a program are run as torch runs them, and their steps are counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from exportguard import torch_export_patches
from exportguard.axes import traced_program
from exportguard.axes.bodies import Course, ManyStepsError
from exportguard.axes.model_run import ModelRun
from exportguard.axes.trial import Outcome, Trial
from exportguard.inputs import CallInputs

ROWS = torch.linspace(-1, 1, 12).reshape(4, 3)

_Step = Callable[[torch.Tensor], torch.Tensor]


def _plain(values: torch.Tensor) -> torch.Tensor:
    return values * 0.5 + 1


def _branch(values: torch.Tensor) -> torch.Tensor:
    return torch.cond(values.sum() > 2, lambda v: v.clamp(max=1.5) - 0.25, lambda v: v.exp(), (values,))


def _loop(values: torch.Tensor) -> torch.Tensor:
    loop = torch._higher_order_ops.while_loop
    _, grown = loop(
        lambda n, v: (v.abs().sum() < 9) & (n < 5), lambda n, v: (n + 1, v * 1.5 + 0.1), (torch.tensor(0), values)
    )
    return grown


def _scan(values: torch.Tensor) -> torch.Tensor:
    scan = torch._higher_order_ops.scan
    last, all_of_them = scan(lambda s, row: (s + row, s * row), torch.zeros(()), values)
    return all_of_them + last


def _weights(values: torch.Tensor) -> torch.Tensor:
    """What is kept as a constant, as a number and as a size within a body."""
    return values * torch.tensor([1.0, 2.0, 4.0]) + values.shape[0] * values.max(dim=0)[0]


STEPS: dict[str, _Step] = {"plain": _plain, "branch": _branch, "loop": _loop, "scan": _scan, "constants": _weights}


class AroundBranch(torch.nn.Module):
    def __init__(self, step: _Step) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0.5, self.step, lambda v: v - 1, (x[0],))


class AroundLoop(AroundBranch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loop = torch._higher_order_ops.while_loop
        count, last = loop(
            lambda n, v: (v.mean() < 3) & (n < 4), lambda n, v: (n + 1, self.step(v) + 0.25), (torch.tensor(0), x[0])
        )
        return last + count


class AroundScan(AroundBranch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, rows = torch._higher_order_ops.scan(
            lambda s, row: (s * 0.5 + row, self.step(row) - s), torch.zeros(3), x
        )
        return rows - state


AROUND = {"branch": AroundBranch, "loop": AroundLoop, "scan": AroundScan}


@pytest.mark.parametrize(("around", "step"), [*itertools.product(AROUND, STEPS)])
def test_a_program_gives_what_torch_makes_of_it(around: str, step: str) -> None:
    model = AROUND[around](STEPS[step]).eval()
    with torch_export_patches():
        program = torch.export.export(model, (ROWS,))
    traced = traced_program.TracedProgram(program)
    for rows in (ROWS, -ROWS, ROWS + 2, ROWS * 0, ROWS * 40, ROWS.t().contiguous().t()):
        (got,) = traced.run(CallInputs((rows,), {}), {})
        torch.testing.assert_close(got, program.module()(rows), rtol=0, atol=0)


class Counts(torch.nn.Module):
    """As many steps as the first number says, within as many as there are rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        most = x[0, 0]

        def counted(row: torch.Tensor) -> torch.Tensor:
            loop = torch._higher_order_ops.while_loop
            return loop(lambda n, v: n < most, lambda n, v: (n + 1, v + n), (torch.tensor(0.0), row))[1]

        return torch._higher_order_ops.scan(lambda s, row: (s + 1, counted(row)), torch.zeros(()), x)[1]


class CountsInPython(torch.nn.Module):
    """The same."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        most = max(math.ceil(x[0, 0]), 0)
        return torch.stack([row + most * (most - 1) / 2 for row in x])


def test_the_steps_of_loops_within_loops_are_counted() -> None:
    with torch_export_patches():
        program = torch.export.export(Counts(), (ROWS,))
    traced = traced_program.TracedProgram(program)
    of_three = CallInputs((ROWS + 4,), {})  # x[0, 0] is 3: four rows, of three steps each
    (expected,) = traced.run(of_three, {})
    torch.testing.assert_close(traced.run(of_three, {}, course=Course(4 + 4 * 3)), [expected])
    with pytest.raises(ManyStepsError, match="more than 15 steps"):
        traced.run(of_three, {}, course=Course(4 + 4 * 3 - 1))


def test_other_data_that_makes_loops_long_is_left_out() -> None:
    with torch_export_patches():
        program = torch.export.export(Counts(), (ROWS,))
    call = CallInputs((ROWS + 4,), {})
    run = ModelRun(CountsInPython(), call)
    trial = Trial(run, traced_program.TracedProgram(program))
    assert trial.outcome_of(call, {}) == Outcome.AGREES
    for first, outcome in ((11, Outcome.AGREES), (2000, Outcome.UNKNOWN)):
        other = run.of(CallInputs((ROWS + 1 + first,), {}), is_brief=True)
        assert trial._compared_for_its_data(other, {}) == outcome
