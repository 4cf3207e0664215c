"""The three streams of a program: what they do not take is told once, and no file takes the number of a closed one."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO

from .errors import FileError


def set_up() -> None:
    """For the rest of the process: a standard output whose errors say so, and a standard error that stops nobody.

    What an encoding has no letter for is written with its number: a name in a report must not stop it.
    """
    for number in range(3):
        _fill(number)
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Unheard(2, "w", closefd=False), sys.stderr)


def write_out() -> bool:
    """Writes what waits to be printed, and tells an error of it; False if not all was taken."""
    if sys.stdout.closed:  # by the code of a model
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever closed a pipe has read enough
        return False
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return False
    return True


class _Output(io.FileIO):
    """What a disk does not take is an error, once: what waits in a buffer would be one again at the end."""

    _is_lost = False

    def write(self, data: Any, /) -> int:
        if self._is_lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._is_lost = True
            if isinstance(error, BrokenPipeError):  # which other libraries know
                raise
            raise FileError(
                f"cannot write the standard output: {error.strerror}; free some space, or send it elsewhere"
            ) from error


class _Unheard(io.FileIO):
    """What cannot be told is lost: the work does not stop for a line of its progress."""

    def write(self, data: Any, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def _fill(number: int) -> None:
    """A closed stream is open to nothing: the next file that is opened would take its number, and be written to by
    whatever prints."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


def _text(raw: io.FileIO, like: TextIO | None) -> TextIO:
    is_unbuffered = bool(getattr(like, "write_through", False))
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(like, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=is_unbuffered or raw.isatty() or raw.fileno() == 2,
    )
