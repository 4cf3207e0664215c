"""The symbols that the axes of an input have, from inputs before it whose axes have the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

#: Tells the symbols of the axes of the input that is being made fake, by axis; None if they are not all known.
KnownAxes = Callable[[], Mapping[int, Any] | None]
_KNOWN_AXES: ContextVar[KnownAxes | None] = ContextVar("exportguard.known_axes", default=None)


@contextmanager
def axes_are_known(ask: KnownAxes) -> Iterator[None]:
    """While an input is made fake whose symbols may be those of inputs before it."""
    token = _KNOWN_AXES.set(ask)
    try:
        yield
    finally:
        _KNOWN_AXES.reset(token)


def known_axes() -> Mapping[int, Any] | None:
    """The symbols of the axes of the input that is being made fake, by axis; None if they are not all known."""
    ask = _KNOWN_AXES.get()
    return None if ask is None else ask()
