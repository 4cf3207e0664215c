"""Signals that wait until a step is done which must not be left halfway: Ctrl-C, and being told to end."""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Callable
from typing import Any, Literal

_Handler = Callable[[int, types.FrameType | None], Any]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DeferredInterrupts:
    """For the time of a block signals that end the program are noted, as far as Python handles them; what handles the
    first one runs at the end of the block.

    Python handles signals in its main thread alone: in any other nothing is to be done.
    """

    def __init__(self) -> None:
        """Changes nothing before the block begins."""
        self._handlers: dict[int, _Handler] = {}
        self._noted: list[tuple[int, types.FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def __exit__(self, *_: object) -> Literal[False]:
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if self._noted:
            number, frame = self._noted[0]
            handlers[number](number, frame)
        return False

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self._noted.append((number, frame))
