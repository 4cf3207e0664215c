"""The operator that a fake kernel is asked about: until it answers, the call stack outside of it stays as it is."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class AskedOperator:
    """A kernel may put many questions about sizes; what depends on who called the operator is found for the first."""

    def __init__(self, frame: types.FrameType) -> None:
        self.frame = frame
        self._found: dict[Callable[[types.FrameType], bool], bool] = {}

    def found(self, look: Callable[[types.FrameType], bool]) -> bool:
        """What `look` says of the call stack from the frame of the question outwards."""
        known = self._found.get(look)
        if known is None:
            known = self._found[look] = look(self.frame)
        return known


_ASKED: ContextVar[AskedOperator | None] = ContextVar("asked_operator", default=None)


def asked_operator() -> AskedOperator | None:
    """The innermost that is asked now."""
    return _ASKED.get()


@contextmanager
def asking_operator() -> Iterator[None]:
    """Around the question, in the function that puts it."""
    token = _ASKED.set(AskedOperator(sys._getframe(2)))  # behind the `__enter__` of the block
    try:
        yield
    finally:
        _ASKED.reset(token)
