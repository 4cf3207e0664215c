"""Ctrl-C that waits until a step is done which must not be left halfway."""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Callable
from typing import Any, Literal

_Handler = Callable[[int, types.FrameType | None], Any]


class DeferredInterrupts:
    """For the time of a block SIGINT is noted; whatever handles it runs at the end of the block.

    Python handles signals in its main thread alone: in any other nothing is to be done.
    """

    def __init__(self) -> None:
        """Changes nothing before the block begins."""
        self._handler: _Handler | None = None
        self._frames: list[types.FrameType | None] = []

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> Literal[False]:
        handler, self._handler = self._handler, None
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if self._frames:
                handler(signal.SIGINT, self._frames[0])
        return False

    def _note(self, _: int, frame: types.FrameType | None) -> None:
        self._frames.append(frame)
