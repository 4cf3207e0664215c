"""Processes of this machine."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager


def opened(address: str, jobs: int) -> AbstractContextManager[Executor]:
    """Threads that each wait for one process at a time."""
    return ThreadPoolExecutor(jobs)
