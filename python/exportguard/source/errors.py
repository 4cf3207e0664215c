"""What the rewriting of sources raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exportguard.errors import ExportError

_NOTED: list[list[RewriteError]] = []  # one list for each block that is open, the innermost last


class RewriteError(ExportError):
    """A function cannot be rewritten, or a construct cannot be expressed in a graph; the text says where and why."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        if _NOTED:
            _NOTED[-1].append(self)


@contextmanager
def noted_errors() -> Iterator[list[RewriteError]]:
    """The errors that are made within the block: a handler of the model's may take one for its own."""
    _NOTED.append([])
    try:
        yield _NOTED[-1]
    finally:
        _NOTED.pop()


def forget(error: RewriteError) -> None:
    """For an error that the rewriting has dealt with itself."""
    for noted in _NOTED:
        noted[:] = [other for other in noted if other is not error]
