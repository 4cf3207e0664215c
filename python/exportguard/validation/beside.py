"""A second runner on the inputs of the first, and what the two make of one file.

What is found is told apart from the verdict on the model: a runtime that is wrong or stops makes no model wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from .discrepancies import compare_outputs

BesideOutcome = Literal["agrees", "differs", "refuses", "runs alone", "not finished"]

#: The first of these that any set of inputs came to is what all of them came to.
_WORST_FIRST: Sequence[BesideOutcome] = ("differs", "refuses", "runs alone", "agrees")


class Session(Protocol):
    """A loaded model."""

    @property
    def output_names(self) -> list[str]: ...

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in order."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A set of inputs that the first runner was given.

    `outputs` is None where it raised; `expected` is what the original returns, in the order of the outputs, which may
    be more.
    """

    name: str
    feeds: Mapping[str, torch.Tensor]
    expected: Sequence[torch.Tensor]
    outputs: Sequence[torch.Tensor] | None = None


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What the second runner came to over all sets of inputs; `reason` tells of each that does not agree.

    "refuses": it raises where the first runs; "runs alone": the first raises where it runs. A set that both raise for
    is not counted. "not finished" stands there while it runs, and remains where it takes the process down.
    """

    runner: str
    outcome: BesideOutcome = "not finished"
    sets: int = 0
    reason: str = ""
    max_absolute: float = 0.0


@dataclass
class _Found:
    outcomes: list[BesideOutcome] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    max_absolute: float = 0.0

    def add(self, outcome: BesideOutcome, reason: str = "") -> None:
        self.outcomes.append(outcome)
        self.reasons += [reason] if reason else []


def refusal(runner: str, error: Exception) -> Beside:
    """What a runner that cannot load the file came to."""
    return Beside(runner=runner, outcome="refuses", reason=_text(error))


def run_beside(runner: str, session: Session, runs: Sequence[Ran]) -> Beside | None:
    """Runs the second runner's session on every set; None where both raise for all of them."""
    found = _Found()
    for ran in runs:
        _add(found, session, ran)
    if not found.outcomes:
        return None
    outcome = next(outcome for outcome in _WORST_FIRST if outcome in found.outcomes)
    return Beside(
        runner=runner,
        outcome=outcome,
        sets=len(found.outcomes),
        reason="; ".join(found.reasons),
        max_absolute=found.max_absolute,
    )


def _add(found: _Found, session: Session, ran: Ran) -> None:
    try:
        got = session.run(ran.feeds)
    except Exception as error:  # runtimes have no common base for their own
        if ran.outputs is not None:
            found.add("refuses", f"{ran.name}: {_text(error)}")
        return
    if ran.outputs is None:
        found.add("runs alone", f"{ran.name}: it {_beside_original(session, ran, got)}")
        return

    outputs = compare_outputs(session.output_names, ran.outputs, got)
    found.max_absolute = max([found.max_absolute, *(output.max_absolute for output in outputs)])
    wrong = [output for output in outputs if not output.agrees]
    if not wrong:
        found.add("agrees")
        return
    worst = max(wrong, key=lambda output: output.max_absolute)
    figures = worst.problem or f"off by {worst.max_absolute:.1e}, {worst.share_over:.1%} of the values over"
    sides = f"the first {_beside_original(session, ran, ran.outputs)}, it {_beside_original(session, ran, got)}"
    found.add("differs", f"{ran.name}: {worst.name} {figures}; {sides}")


def _beside_original(session: Session, ran: Ran, got: Sequence[torch.Tensor]) -> str:
    """Whether outputs are those of the original."""
    if len(got) < len(ran.expected):
        return "has other outputs than the original"
    count = len(ran.expected)
    found = compare_outputs(session.output_names[:count], ran.expected, got[:count])
    return "agrees with the original" if all(output.agrees for output in found) else "differs from the original"


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
