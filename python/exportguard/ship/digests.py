"""The files of an export as they were written: what was changed or lost since is told by the SHA-256 of each.

A weight of which one bit is another need not show in the outputs of a few calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from .staging import REPORT, files_below


def digests_of(folder: Path, *, are_summed: bool = True) -> dict[str, str | None]:
    """The SHA-256 of every file below a folder but the report, in hexadecimal, by its path within; None for all where
    they are not summed up, which takes as long as to read them."""
    names = (name for name in files_below(folder) if name != REPORT)
    return {name: _digest(folder / name) if are_summed else None for name in names}


def changes_since(folder: Path, told: Mapping[str, str | None]) -> Iterator[str]:
    """What became of the files that a report tells the digests of."""
    for name, digest in told.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif digest is not None and _digest(path) != digest:
            yield f"{name} is not the file that was written"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
