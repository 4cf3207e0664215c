"""Which commit of exportguard results are of, where it runs from a checkout."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@functools.cache
def commit_of_sources() -> str:
    """The commit that the sources are of, with "+" if they were changed since; "" without a checkout of their own."""
    top = _git("rev-parse", "--show-toplevel")
    if not top or Path(top, "python", _PACKAGE.name).resolve() != _PACKAGE.resolve():
        return ""
    return _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
