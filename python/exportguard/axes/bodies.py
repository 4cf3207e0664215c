"""Branches and loops of a program, run by what their graphs do.

torch's own operators (2.11 to 2.13) look at all that goes into a branch or a step and at all that comes out, through
several layers of Python, which takes longer than the few operators of most steps.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

_Function = Callable[..., Sequence[Any]]

BRANCH = torch.ops.higher_order.cond
WHILE = torch.ops.higher_order.while_loop
SCAN = torch.ops.higher_order.scan

_HALF = 0.5


class ManyStepsError(RuntimeError):
    """The loops of a run go through more steps than it was given."""


class Course:
    """How a run goes through branches and loops."""

    def __init__(self, most_steps: int | None = None, ways: int | None = None) -> None:
        """`most_steps` of all loops, those of loops within loops as well; as many as there are by default.

        With a number of `ways` branches go one way or the other whatever their data say: all of them the second with 0
        and the first with 1, and else as chance has it for each line of the model's code, or, where the number is odd,
        for each time that a line comes. Programs that were made of one code go through it alike with one number.
        """
        self.steps, self._most_steps, self._ways = 0, most_steps, ways
        self._times: collections.Counter[str] = collections.Counter()

    def step(self) -> None:
        """One more step.

        Raises:
            ManyStepsError: it is one too many.
        """
        self.steps += 1
        if self._most_steps is not None and self.steps > self._most_steps:
            raise ManyStepsError(f"the loops go through more than {self._most_steps} steps")

    def goes(self, predicate: Any, line: str) -> bool:
        """Whether a branch of this line goes its first way."""
        if self._ways is None:
            return bool(predicate)
        self._times[line] += 1
        if self._ways in (0, 1):
            return self._ways == 1
        time = self._times[line] if self._ways % 2 else 0
        place, _, code = line.partition(": ")
        seen = place.rpartition("/")[2]  # wherever its folder lies
        return random.Random(f"{self._ways} {time} {seen} {code}").random() < _HALF


def branch(is_first: bool, functions: Sequence[_Function], operands: Sequence[Any]) -> Sequence[Any]:
    """What `torch.cond` gives: the results of the first function or else the second's."""
    chosen = functions[0] if is_first else functions[1]
    return tuple(chosen(*operands))


def while_loop(
    condition: _Function, body: _Function, carried: Sequence[Any], additional: Sequence[Any], course: Course
) -> Sequence[Any]:
    """What `torch.while_loop` gives: the carried values behind as many steps as the condition says."""
    state = [value.clone() if isinstance(value, torch.Tensor) else value for value in carried]
    while condition(*state, *additional)[0]:
        course.step()
        state = [*body(*state, *additional)]
    return tuple(state)


def scan(
    combine: _Function, init: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], additional: Any, course: Course
) -> Sequence[torch.Tensor]:
    """What `torch.scan` gives over one row or more: the state behind the last, and what each of them made, in a row."""
    state: Sequence[torch.Tensor] = [value.clone() for value in init]
    made: list[Sequence[torch.Tensor]] = []
    for row in range(rows[0].shape[0]):
        course.step()
        results = combine(*state, *(values[row] for values in rows), *additional)
        state = results[: len(init)]
        made.append([value.clone() for value in results[len(init) :]])
    return (*state, *map(torch.stack, zip(*made, strict=True)))
