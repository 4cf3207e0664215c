"""Branches and loops of a program, run by what their graphs do.

torch's own operators (2.11 to 2.13) look at all that goes into a branch or a step and at all that comes out, through
several layers of Python, which takes longer than the few operators of most steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_Function = Callable[..., Sequence[Any]]

BRANCH = torch.ops.higher_order.cond
WHILE = torch.ops.higher_order.while_loop
SCAN = torch.ops.higher_order.scan


class ManyStepsError(RuntimeError):
    """The loops of a run go through more steps than it was given."""


class Steps:
    """Counts the steps of all loops of a run, those of loops within loops as well."""

    def __init__(self, most: int | None = None) -> None:
        """`most` of them, or as many as there are."""
        self.count, self._most = 0, most

    def add(self) -> None:
        """One more step.

        :raises ManyStepsError: it is one too many
        """
        self.count += 1
        if self._most is not None and self.count > self._most:
            raise ManyStepsError(f"the loops go through more than {self._most} steps")


def branch(predicate: Any, functions: Sequence[_Function], operands: Sequence[Any]) -> Sequence[Any]:
    """What `torch.cond` gives: the first function's results if the predicate holds, or else the second's."""
    chosen = functions[0] if predicate else functions[1]
    return tuple(chosen(*operands))


def while_loop(
    condition: _Function, body: _Function, carried: Sequence[Any], additional: Sequence[Any], steps: Steps
) -> Sequence[Any]:
    """What `torch.while_loop` gives: the carried values behind as many steps as the condition says."""
    state = [value.clone() if isinstance(value, torch.Tensor) else value for value in carried]
    while condition(*state, *additional)[0]:
        steps.add()
        state = [*body(*state, *additional)]
    return tuple(state)


def scan(
    combine: _Function, init: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], additional: Any, steps: Steps
) -> Sequence[torch.Tensor]:
    """What `torch.scan` gives over one row or more: the state behind the last, and what each of them made, in a row."""
    state: Sequence[torch.Tensor] = [value.clone() for value in init]
    made: list[Sequence[torch.Tensor]] = []
    for row in range(rows[0].shape[0]):
        steps.add()
        results = combine(*state, *(values[row] for values in rows), *additional)
        state = results[: len(init)]
        made.append([value.clone() for value in results[len(init) :]])
    return (*state, *map(torch.stack, zip(*made, strict=True)))
