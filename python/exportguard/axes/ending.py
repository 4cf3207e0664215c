"""Runs that may never end: of a model, at sizes or for data that nobody asked for.

`while n < 16: n *= 2` ends for every size but 0, and a solver may not for numbers that are a hundred times as large. A
run has no end if it takes many times more lines of Python than the call that is known: lines, since it is to be the
same on every machine. To count them makes Python slow. So that is done for runs alone that take longer than others: a
thread looks now and then whether one does, interrupts it within the model's code, and it begins again, counted. What
has ended then gives later runs as long as it took. The thread looks at memory, too: a loop that doubles what it holds
takes all there is within a few lines.

What loops in C, as `sum(itertools.count())` does, has no lines, and nothing in Python can interrupt it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from exportguard.model_code import is_users

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_SECONDS = 1.0  # that a run takes uncounted, before another one has taken longer
_WAITING = 1 / 16  # of a second, for each that passes without work
_LOOK = 0.1  # seconds between two looks at it
_LINES = 2**16  # that every run may take
_TIMES = 1000  # how many times those of the known call, if that is more
_MEMORY = 2**33  # bytes that a run may take, as many as the largest tensors of a trial (`vast`)
_STATM = Path("/proc/self/statm")  # pages of this process: all, in memory, …; Linux has it alone

_interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupt.argtypes = (ctypes.c_ulong, ctypes.py_object)


class EndlessError(BaseException):
    """A run has no end, or takes longer than others. No handler of a model's is meant for it: it is no `Exception`."""


class _TakenBackError(BaseException):
    """Stands for an `EndlessError` that comes too late."""


#: Makes the call of a model, which is interrupted if it has no end; so is nothing that stands around it.
Watched = Callable[[Callable[[], Any]], Any]


class Ending:
    """Whether runs of one model end."""

    def __init__(self, run_known: Callable[[Watched], object]) -> None:
        """`run_known` makes the call that is known to end."""
        self._run_known = run_known
        self._known: int | None = None
        self._seconds = _SECONDS
        self._is_counted = self._are_brief_counted = False

    def ended(self, run: Callable[[Watched], _Result], *, times: float = 1) -> _Result:
        """What a function returns, which calls the model by what it is given; it may be called more than once.

        :param times: how much more there is to go through than in the known call; 0 for a run that matters little,
            which is given no more lines than any
        :raises EndlessError: it does not end, or is too long
        """
        with _watched() as watch:
            if not (self._is_counted or (times == 0 and self._are_brief_counted)):
                try:
                    return run(watch.within_seconds(self._seconds))
                except EndlessError:
                    logger.debug("the model takes more than %s seconds, and its lines are counted", self._seconds)
            began = watch.now()
            try:
                most = int(_TIMES * self._lines_of_known(watch) * max(times, 1)) if times else 0
                result = run(watch.within_lines(max(most, _LINES)))
            except EndlessError:
                self._are_brief_counted = True
                self._is_counted = self._is_counted or times > 0
                raise
            self._seconds = max(self._seconds, watch.now() - began)
            return result

    def _lines_of_known(self, watch: _Watch) -> int:
        if self._known is None:
            lines = watch.within_lines(_TIMES * _LINES)
            try:
                self._run_known(lines)
            except EndlessError:
                lines.count = 0
            self._known = lines.count
        return self._known


class _Watch:
    """A thread that looks whether the runs of another one, in which it was made, take long."""

    def __init__(self) -> None:
        self._watched = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._watched)
        self._lock = threading.Lock()
        self._until: float | None = None  # of the run that there is
        self._memory = 0  # bytes that it began with
        self._is_sent = False  # what interrupts it
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="exportguard: runs without an end", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._is_over.set()
        self._thread.join()

    def now(self) -> float:
        """Seconds of work of the watched thread, whatever else the machine does; a little for those without work."""
        return time.clock_gettime(self._clock) + _WAITING * time.monotonic()

    def within_seconds(self, seconds: float) -> Watched:
        """Calls a function, and raises `EndlessError` in it if it takes longer."""
        return lambda run: self.interrupted(run, self.now() + seconds)

    def within_lines(self, most: int) -> _Lines:
        """Calls a function, and counts the lines of models that it goes through."""
        return _Lines(self, most)

    def interrupted(self, run: Callable[[], Any], until: float) -> Any:
        """What a function returns.

        :raises EndlessError: it has not by that time, it takes too much memory, or `interrupt` was called
        """
        before, memory = self._until, self._memory
        try:
            try:
                self._memory = _in_memory()
                self._until = until
                return run()
            finally:
                self._stop(before)
        except EndlessError:
            self._stop(before)  # it may have been raised in the other call
            raise
        finally:
            self._memory = memory

    def interrupt(self) -> None:
        """From now on the run is interrupted, again and again if a handler takes what is raised."""
        self._until = self.now()

    def _stop(self, before: float | None) -> None:
        with self._lock:
            self._until = before
        if self._is_sent:
            self._take_back()

    def _take_back(self) -> None:
        """Has what was sent and not raised yet replaced, and that raised, for Python (3.11) asks again and again for
        what there is no more."""
        try:
            _interrupt(self._watched, _TakenBackError)
            while True:
                pass
        except _TakenBackError:
            self._is_sent = False

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK):
            with self._lock:
                if self._until is None or (self.now() < self._until and _in_memory() - self._memory < _MEMORY):
                    continue
                frame = sys._current_frames().get(self._watched)
                # Elsewhere, as in a context manager of torch's, an exception leaves behind what is half done.
                if frame is not None and is_users(frame.f_code.co_filename):
                    self._is_sent = True
                    _interrupt(self._watched, EndlessError)


def _in_memory() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE if _STATM.exists() else 0


class _Lines:
    """Calls a function, and counts the lines of models that it goes through, and the calls of their functions."""

    def __init__(self, watch: _Watch, most: int) -> None:
        self.count = 0
        self._watch, self._most = watch, most

    def __call__(self, run: Callable[[], Any]) -> Any:
        """What a function returns.

        :raises EndlessError: they are too many
        """
        return self._watch.interrupted(lambda: self._counted(run), float("inf"))

    def _counted(self, run: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._of_call)
        try:
            return run()
        finally:
            sys.settrace(before)

    def _of_call(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._of_line(frame, event, value) if is_users(frame.f_code.co_filename) else None

    def _of_line(self, frame: FrameType, event: str, value: Any) -> Any:
        self.count += 1
        if self.count > self._most:
            self._watch.interrupt()  # for Python does not trace any longer behind what is raised here
            raise EndlessError
        return self._of_line


_WATCH: ContextVar[_Watch | None] = ContextVar("exportguard.ending", default=None)


@contextlib.contextmanager
def watched_for_their_end() -> Iterator[None]:
    """One thread looks at all runs of a block."""
    with _watched():
        yield


@contextlib.contextmanager
def _watched() -> Iterator[_Watch]:
    watch = _WATCH.get()
    if watch is not None:
        yield watch
        return
    watch = _Watch()
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)
        watch.close()
