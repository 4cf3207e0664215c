"""Interrupts that another exception hides: what runs while Ctrl-C goes out may raise something of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_come_out() -> Iterator[None]:
    """Raises the interrupt in the place of an exception of the block that was raised while it went out.

    What was being handled before the block began is no part of it. Who raises an error from a `SystemExit` has dealt
    with it. `GeneratorExit` ends a generator and no program: what one raises in its end is an error as others.

    >>> with interrupts_come_out():
    ...     try:
    ...         raise SystemExit(3)
    ...     finally:
    ...         [].pop()
    Traceback (most recent call last):
    SystemExit: 3
    """
    handled = sys.exception()
    try:
        yield
    except Exception as error:
        interrupt = _interrupt_behind(error, handled)
        if interrupt is not None:
            raise interrupt from error
        raise


def _interrupt_behind(error: Exception, handled: BaseException | None) -> BaseException | None:
    """The first interrupt among the exceptions that led to one, up to that which was handled before."""
    pending: list[tuple[BaseException | None, bool]] = [(error, True)]
    seen = {id(handled)}
    for current, is_dealt_with in pending:
        if current is None or id(current) in seen:
            continue
        if isinstance(current, KeyboardInterrupt) or (isinstance(current, SystemExit) and not is_dealt_with):
            return current
        seen.add(id(current))
        pending += [(current.__context__, current.__suppress_context__), (current.__cause__, True)]
    return None
