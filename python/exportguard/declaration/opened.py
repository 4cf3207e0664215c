"""A guard for a block of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exportguard import _core
from exportguard.declaration.interrupts import DeferredInterrupts
from exportguard.declaration.options import PatchOptions
from exportguard.errors import GuardError


@contextmanager
def opened(options: PatchOptions) -> Iterator[_core.ExportPatches]:
    """What the options ask for in force until the end of the block, which restores everything also after an error.

    An interrupt while patches are installed or taken back comes out when that is done.
    """
    guard: _core.ExportPatches | None = None
    try:
        with DeferredInterrupts():
            guard = _core.ExportPatches(options)
        yield guard
    except BaseException as error:
        if guard is not None:
            _close_after_error(guard, error)
        raise
    else:
        _close(guard)
    finally:
        if guard is not None and guard.is_open:  # an interrupt came between the block and its end
            _close(guard)


def _close(guard: _core.ExportPatches) -> None:
    interrupt: KeyboardInterrupt | None = None
    while guard.is_open:
        try:
            with DeferredInterrupts():
                guard.close()
        except KeyboardInterrupt as error:  # before it was deferred, or when it no longer was
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _close_after_error(guard: _core.ExportPatches, error: BaseException) -> None:
    """The error of the body is the one to see; what could not be restored is told beside it."""
    try:
        _close(guard)
    except GuardError as restore_error:
        error.add_note(f"exportguard: {restore_error}")
