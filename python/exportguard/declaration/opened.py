"""A guard for a block of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exportguard import _core
from exportguard.declaration.options import PatchOptions
from exportguard.errors import GuardError


@contextmanager
def opened(options: PatchOptions) -> Iterator[_core.ExportPatches]:
    """What the options ask for in force until the end of the block, which restores everything also after an error."""
    guard = _core.ExportPatches(options)
    try:
        yield guard
    except BaseException as error:
        _close_after_error(guard, error)
        raise
    guard.close()


def _close_after_error(guard: _core.ExportPatches, error: BaseException) -> None:
    """The error of the body is the one to see; what could not be restored is told beside it."""
    try:
        guard.close()
    except GuardError as restore_error:
        error.add_note(f"exportguard: {restore_error}")
