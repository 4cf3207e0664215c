"""How long the weights of a file take to be quantized, beside reading them: from the disk, and from the system's cache.

    exportguard export -m MODEL -o out --no-verify
    python benchmarks/quantization_time.py out             # int4
    python benchmarks/quantization_time.py out int8

The folder stays as it is: the quantized file is written beside it, and removed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sections import markdown_table

from exportguard.ship.quantization import QUANTIZATIONS, quantize_file


def forget(path: Path) -> None:
    """Takes the file out of the system's cache; what was written and is not on the disk yet stays."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    """Every byte, once."""
    buffer = bytearray(1 << 22)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def quantized(folder: Path, form: str) -> None:
    """In a copy that shares the weights until they are written anew."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        copy = Path(name)
        shutil.copy(folder / "model.onnx", copy)
        os.link(folder / "model.onnx.data", copy / "model.onnx.data")
        quantize_file(copy / "model.onnx", QUANTIZATIONS[form])


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    begin, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - spent


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "form", nargs="?", default="int4", choices=[name for name in QUANTIZATIONS if "static" not in name]
    )
    options = parser.parse_args()
    data = options.folder / "model.onnx.data"
    rows = []
    for place in ("disk", "cache"):
        found = []
        for work in (lambda: read(data), lambda: quantized(options.folder, options.form)):
            if place == "disk":
                forget(data)
            found.append(timed(work))
        (reading, reading_cpu), (taken, cpu) = found
        rows.append(
            (place, f"{reading:.2f}", f"{taken:.2f}", f"{taken / 2 / reading:.2f}", f"{reading_cpu:.2f}", f"{cpu:.2f}")
        )
    header = (
        "weights from",
        "read once, s",
        "quantized, s",
        "of reading twice",
        "read once, CPU s",
        "quantized, CPU s",
    )
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
