"""What a command tells while it works: one line that changes on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console

Tell = Callable[[str], None]


@contextlib.contextmanager
def telling(*, quiet: bool) -> Iterator[Tell]:
    """Yields a function that takes the name of each step. All of it goes to the standard error.

    Without a terminal, in the log of a CI for example, every step is a line with the seconds since the start.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda step: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda step: status.update(f"{step} …")
    else:
        start = time.monotonic()
        yield lambda step: print(f"[{time.monotonic() - start:6.1f} s] {step}", file=sys.stderr, flush=True)
