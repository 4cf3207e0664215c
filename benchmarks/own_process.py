"""What is tried in a process of its own, which a fault may end: `told_by(steps)`."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Sequence

#: Seconds for one step; one that never returns ends by SIGALRM.
PATIENCE = 10


def told_by(steps: Sequence[Callable[[], str]], patience_s: int = PATIENCE) -> list[str]:
    """What each step says, in one line; of a step that ended its process, how, and the next ones go on in another."""
    told: list[str] = []
    while len(told) < len(steps):
        lines, status = _in_child(steps[len(told) :], patience_s)
        told += lines
        if os.WIFSIGNALED(status):
            told.append(f"ends the process by {signal.Signals(os.WTERMSIG(status)).name}")
        elif len(told) < len(steps):
            raise RuntimeError("a step could not be tried in a process of its own")
    return told


def _in_child(steps: Sequence[Callable[[], str]], patience_s: int) -> tuple[list[str], int]:
    """What the steps said until one of them ended the process, and how that ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            with os.fdopen(write, "w") as pipe:
                for step in steps:
                    signal.alarm(patience_s)
                    pipe.write(" ".join(step().split()) + "\n")
                    pipe.flush()
        finally:
            os._exit(0)  # nothing else of this process is for the child, whatever was raised
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return lines, status
