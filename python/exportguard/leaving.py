"""The end of a program."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

from .streams import write_out


def leave(code: int) -> NoReturn:
    """Ends the process with this code, as `sys.exit` does, and leaves its memory to the system.

    Python takes apart every module before it ends: with torch and transformers in it that takes longer than to trace a
    small model. All that a program may count on is done before: what was registered for the end is called, and what was
    printed is written; where that is not possible, success is none.
    """
    if not write_out():
        code = code or 1
    if _is_awaited():
        sys.exit(code)
    atexit._run_exitfuncs()
    os._exit(code if write_out() else code or 1)


def _is_awaited() -> bool:
    """Whether something goes on behind the program: a thread that is to end first, or what watches it run."""
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    monitoring = getattr(sys, "monitoring", None)  # of Python 3.12
    if monitoring is not None:
        watched = watched or any(monitoring.get_tool(tool) is not None for tool in range(6))
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return watched or any(not thread.daemon for thread in others)
