"""Sessions for the few calls of a proof."""

from __future__ import annotations

from pathlib import Path

from exportguard.runners.onnxruntime import OrtSession, SessionOptions

#: Bytes of weights from which on they are not laid out anew in memory.
LARGE = 1 << 30


def session_of(file: Path) -> OrtSession:
    """A session that has no second copy of large weights."""
    return OrtSession(file, SessionOptions(packs_weights=weight_bytes(file) < LARGE))


def weight_bytes(file: Path) -> int:
    """The size of the file and of what lies beside it under its name."""
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
