"""A folder that shows up whole or not at all."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from exportguard.declaration.interrupts import DeferredInterrupts
from exportguard.errors import ExportGuardError, FileError

REPORT = "export_report.json"  # what tells a folder of ours
_STAGING, _LOCK = ".part", ".lock"
#: What a disk says that takes no more, or nothing.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_LONGEST_SUFFIX = 24  # bytes that are added to a name while a folder is made
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of fcntl.h


@contextlib.contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yields a folder beside `target` that takes its place when the block ends without an error.

    A process that is killed leaves nothing under the name of `target`; what it had written beside it is removed by the
    next one that writes there. An earlier export there is replaced; any other folder with something in it is not.

    Raises:
        FileError: the target is taken by something else, or cannot be written, found out before the block; or the disk
            takes no more.
    """
    require_free(target)
    target = Path(os.path.realpath(target))  # a link stays, and what it leads to is replaced
    beside = _Beside(target)
    try:
        with DeferredInterrupts():
            staging = beside.make()
        try:
            yield staging
        except ExportGuardError as error:  # nobody finds the folder of that name any more
            error.args = tuple(str(told).replace(str(staging), str(target)) for told in error.args)
            raise
        _put_in_place(staging, target)
    except ExportGuardError:
        raise
    except Exception as error:  # some libraries have no error of their own for what the disk does not take
        reason = _reason_of_disk(error)
        if reason is None:
            raise
        raise FileError(f"cannot write {target}: {reason}; free some space, or pass another folder") from error
    finally:
        with DeferredInterrupts():
            beside.remove()


class _Beside:
    """What stands beside a folder while it is made, and folders above it that were not there.

    It is removed at the end of the process if an interrupt came where no block of Python's is entered yet, or any more.
    """

    def __init__(self, target: Path) -> None:
        self._target, self._process = target, os.getpid()
        self._above = [above for above in target.absolute().parents if not above.exists()]
        self._lock: tuple[int, Path] | None = None

    def make(self) -> Path:
        """The folder that takes the place of the target in the end.

        Raises:
            FileError: with the system's reason.
        """
        target = self._target
        atexit.register(self.remove)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(target)
            number, name = tempfile.mkstemp(prefix=f".{target.name}-", suffix=_LOCK, dir=target.parent)
            self._lock = number, Path(name)
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            staging = Path(name).with_suffix(_STAGING)
            staging.mkdir()
        except OSError as error:
            raise FileError(f"cannot write {target}: {error.strerror}; pass another folder") from error
        return staging

    def remove(self) -> None:
        """Takes away whatever was made; a fork of the process that makes it leaves it."""
        atexit.unregister(self.remove)
        if os.getpid() != self._process:
            return
        if self._lock is not None:
            (number, lock), self._lock = self._lock, None
            shutil.rmtree(lock.with_suffix(_STAGING), ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(number)
        with contextlib.suppress(OSError):  # not empty: something stands there now
            for above in self._above:
                above.rmdir()


def require_free(target: Path) -> None:
    """Raises FileError unless nothing stands there, an empty folder, or an earlier export alone; and a folder can be
    made."""
    _require_name(target)
    _require_place(target)
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.is_dir() and (target / REPORT).is_file():
        _require_nothing_else(target)
        return
    if target.exists() or target.is_symlink():
        what = "a folder with other files in it" if target.is_dir() else "a file" if target.exists() else "a lost link"
        raise FileError(f"cannot write {target}: it is {what}; pass a folder that is new, or of an earlier export")


def _require_nothing_else(export: Path) -> None:
    """An earlier export is replaced as a whole: what was put beside its files would be lost."""
    try:
        known = {*json.loads((export / REPORT).read_text(encoding="utf-8"))["sha256"], REPORT}
    except (OSError, ValueError, LookupError, TypeError):  # it does not tell what it wrote
        return
    others = [name for name in files_below(export) if name not in known]
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise FileError(
            f"cannot write {export}: beside an earlier export it has other files ({shown}), which would be lost; move "
            "them out, or pass another folder"
        )


def files_below(folder: Path) -> list[str]:
    """The paths, within a folder, of all that is below it and no folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def _require_name(target: Path) -> None:
    """Runtimes take names as texts, and relative ones begin where the process is."""
    if "\0" in str(target):
        raise FileError(f"cannot write {str(target)!r}: a name cannot have a zero character; pass another folder")
    try:
        whole = str(target.absolute())
    except FileNotFoundError as error:
        raise FileError(f"cannot write {target}: the folder where you are is gone; pass a whole path") from error
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        raise FileError(f"cannot write {whole!r}: runtimes read names as UTF-8; pass another folder") from error


def _require_place(target: Path) -> None:
    """Found out without making anything: the nearest folder above that is there takes new ones of that name."""
    place = next(above for above in [*target.absolute().parents, target] if os.path.lexists(above))
    reason = None
    if not place.is_dir():
        reason = f"{place} is no folder"
    elif not os.access(place, os.W_OK | os.X_OK):
        reason = f"{place} cannot be written to"
    elif len(os.fsencode(target.name)) + _LONGEST_SUFFIX > os.pathconf(place, "PC_NAME_MAX"):
        reason = f"its name has {len(os.fsencode(target.name))} bytes, and is too long"
    if reason is not None:
        raise FileError(f"cannot write {target}: {reason}; pass another folder")


def _remove_abandoned(target: Path) -> None:
    """What killed processes left beside the target: a lock that nobody holds tells them."""
    for path in target.parent.glob(f".{glob.escape(target.name)}-*{_LOCK}"):
        with contextlib.suppress(OSError), path.open("ab") as lock:  # held by another one, or removed just now
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(_STAGING), ignore_errors=True)
            path.unlink()


def _reason_of_disk(error: BaseException | None) -> str | None:
    """Why the disk did not take what was written; None if it was something else.

    torch's writer raises an error of its own, in the context of which the true one is, and those of Rust, which
    tokenizers are written by, have the number in their text.
    """
    while error is not None:
        told = re.search(r"\(os error (\d+)\)", str(error))
        number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
        if number in DISK_ERRORS:
            return os.strerror(number)
        error = error.__cause__ or error.__context__
    return None


def _put_in_place(staging: Path, target: Path) -> None:
    """In one step, also where an earlier export stands: `staging` has that one then."""
    require_free(target)  # once more: the work took a while
    try:
        if not target.exists():
            staging.rename(target)
        elif not _exchanged(staging, target):
            # On a file system that cannot; between the two renames the earlier one is there under another name.
            earlier = Path(tempfile.mkdtemp(prefix=f".{target.name}-earlier-", dir=target.parent))
            target.rename(earlier)
            staging.rename(target)
            earlier.rename(staging)
    except OSError as error:
        raise FileError(f"cannot put the export in its place at {target}: {error.strerror}") from error


def _exchanged(first: Path, second: Path) -> bool:
    """Gives each folder the name of the other (Linux 3.15, glibc 2.28: `renameat2`, which Python has no name for)."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(first.absolute()), os.fsencode(second.absolute())
    return rename is not None and rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0
