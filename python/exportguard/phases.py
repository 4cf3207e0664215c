"""The seconds that each phase of an export takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_RECORD: ContextVar[dict[str, float] | None] = ContextVar("exportguard.phases", default=None)

_CLOCK: ContextVar[Callable[[], float]] = ContextVar("exportguard.clock", default=time.perf_counter)


@contextmanager
def measured_by(clock: Callable[[], float]) -> Iterator[None]:
    """Phases in the block take the seconds that another clock tells: `time.process_time` leaves out other programs."""
    token = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(token)


@contextmanager
def recorded_phases() -> Iterator[dict[str, float]]:
    """Yields a record that has, after the block, the seconds of each phase in it, those of one name added up.

    >>> with recorded_phases() as seconds, phase("tracing"):
    ...     pass
    >>> list(seconds)
    ['tracing']
    """
    record: dict[str, float] = {}
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The block is a phase of what is recorded in this thread, if anything is; phases may lie in one another."""
    clock = _CLOCK.get()
    start = clock()
    try:
        yield
    finally:
        record = _RECORD.get()
        if record is not None:
            record[name] = record.get(name, 0.0) + clock() - start
