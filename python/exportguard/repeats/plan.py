"""Whether operator calls are traced once or all, for the time of an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from exportguard.errors import InvalidArgumentError
from exportguard.repeats.counts import Counts

Repeats = Literal["trace once", "trace all", "verify"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the exports do while it is in force.

    `keeps_markers`: the exported program has one node for each block that was not traced, instead of its operators.
    `counts` gets those of each trace.
    """

    traces_once: bool = True
    keeps_markers: bool = False
    counts: list[Counts] = field(default_factory=list)


@dataclass(eq=False)
class _InForce:
    plan: Plan
    is_over: bool = False


#: From the first to the last. A block may be left in another context than it was entered in, or before one within it.
_IN_FORCE: ContextVar[tuple[_InForce, ...]] = ContextVar("exportguard.repeats", default=())


def current_plan() -> Plan:
    """The plan that is in force in this thread."""
    return next((entry.plan for entry in reversed(_IN_FORCE.get()) if not entry.is_over), Plan())


def checked_repeats(value: str) -> Repeats:
    """One of the three choices.

    :raises InvalidArgumentError: for any other
    """
    for choice in get_args(Repeats):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    known = ", ".join(f'"{choice}"' for choice in get_args(Repeats))
    raise InvalidArgumentError(f"repeats must be one of {known}, got {value!r}")


@contextmanager
def repeats_planned(repeats: Repeats) -> Iterator[None]:
    """Exports in the block trace all calls if `repeats` says so, or what is around the block; else they trace once.

    "verify" traces once: whoever exports compares.
    """
    plan = current_plan()
    with _planned(replace(plan, traces_once=plan.traces_once and repeats != "trace all")):
        yield


@contextmanager
def traced_with_markers(repeats: Repeats) -> Iterator[list[Counts]]:
    """Programs exported in the block have markers, which `markers.expand` puts the operators in the place of.

    Yields what becomes of the calls of each trace in the block, in order.
    """
    counts: list[Counts] = []
    traces_once = current_plan().traces_once and checked_repeats(repeats) != "trace all"
    with _planned(Plan(traces_once=traces_once, keeps_markers=True, counts=counts)):
        yield counts


@contextmanager
def counted() -> Iterator[list[Counts]]:
    """Yields what becomes of the calls of each trace in the block, in order."""
    outer = current_plan()
    counts: list[Counts] = []
    with _planned(replace(outer, counts=counts)):
        try:
            yield counts
        finally:
            outer.counts.extend(counts)


@contextmanager
def _planned(plan: Plan) -> Iterator[None]:
    own = _InForce(plan)
    _IN_FORCE.set((*_IN_FORCE.get(), own))
    try:
        yield
    finally:
        own.is_over = True
        _IN_FORCE.set(tuple(entry for entry in _IN_FORCE.get() if not entry.is_over))
