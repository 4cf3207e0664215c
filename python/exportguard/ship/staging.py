"""A folder that shows up whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from exportguard.errors import FileError

REPORT = "export_report.json"  # what tells a folder of ours


@contextlib.contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yields a folder beside `target` that takes its place when the block ends without an error.

    A process that is killed leaves nothing under the name of `target`. An earlier export there is replaced; any other
    folder with something in it is not.

    Raises:
        FileError: the target is taken by something else, or cannot be written; found out before the block.
    """
    require_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror}; pass another folder") from error
    try:
        yield staging
        _put_in_place(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def require_free(target: Path) -> None:
    """Raises FileError unless nothing stands there, an empty folder, or an earlier export."""
    if target.is_dir() and (not any(target.iterdir()) or (target / REPORT).is_file()):
        return
    if target.exists() or target.is_symlink():
        what = "a folder with other files in it" if target.is_dir() else "a file"
        raise FileError(f"cannot write {target}: it is {what}; pass a folder that is new, or of an earlier export")


def _put_in_place(staging: Path, target: Path) -> None:
    """Renames; between the two renames of a replacement the old folder is still there under its other name."""
    os.chmod(staging, 0o777 & ~_umask())  # mkdtemp's are for the owner alone
    try:
        if not target.exists():
            staging.rename(target)
            return
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
        target.rename(old)
        try:
            staging.rename(target)
        except OSError:
            old.rename(target)
            raise
    except OSError as error:
        raise FileError(f"cannot put the export in its place at {target}: {error.strerror}") from error
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    """The process' mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
