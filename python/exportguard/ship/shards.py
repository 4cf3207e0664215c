"""Weights in several files of a chosen size, for file systems, hubs and browsers that take no larger ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exportguard.errors import FileError, InvalidArgumentError
from exportguard.optional import OptionalModule

from .weights import entries_of, tensors_of

onnx: Any = OptionalModule("onnx")

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text: str) -> int:
    """A size as people write it.

    >>> bytes_of("500MB"), bytes_of("1.5 GiB"), bytes_of("4096")
    (500000000, 1610612736, 4096)

    Raises:
        InvalidArgumentError: it is none, or of no byte.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", text.strip())
    if found is None or found[2] not in _UNITS or float(found[1]) * _UNITS[found[2]] < 1:
        raise InvalidArgumentError(f"a size is a number and one of {', '.join(_UNITS)[2:]}, got {text!r}; write 2GB")
    return int(float(found[1]) * _UNITS[found[2]])


def split_data(file: Path, size: int) -> list[str]:
    """Cuts the data file beside `file` into files of at most `size` bytes, a larger tensor in one of its own, and
    returns their names: `<file>.data`, `<file>.data_1`, …; one name where it is small enough, none without data.

    They are cut off from the end, so that no more than one of them is there twice.

    Raises:
        FileError: a file cannot be written.
    """
    data = file.with_name(f"{file.name}.data")
    if not data.is_file():
        return []
    model = onnx.load(str(file), load_external_data=False)
    tensors = [entries_of(tensor) for tensor in tensors_of(model.graph) if tensor.external_data]
    tensors.sort(key=lambda entries: int(entries["offset"].value))
    starts = _starts(tensors, size)
    names = [f"{data.name}_{number}" if number else data.name for number in range(len(starts))]
    try:
        for name, start in reversed(list(zip(names, starts, strict=True))[1:]):
            _cut_off(data, start, data.with_name(name))
    except OSError as error:
        raise FileError(f"cannot write a part of {data}: {error.strerror}") from error

    for entries in tensors:
        offset = int(entries["offset"].value)
        number = max(number for number, start in enumerate(starts) if start <= offset)
        entries["location"].value = names[number]
        entries["offset"].value = str(offset - starts[number])
    onnx.save(model, str(file))
    return names


def rename_data(file: Path, new_name: Callable[[str], str]) -> None:
    """Writes into a file the names that its data files will have."""
    model = onnx.load(str(file), load_external_data=False)
    for tensor in tensors_of(model.graph):
        for key, entry in entries_of(tensor).items():
            if key == "location":
                entry.value = new_name(entry.value)
    onnx.save(model, str(file))


def _starts(tensors: list[dict[str, Any]], size: int) -> list[int]:
    """Where each part begins; tensors that share their bytes stay together."""
    starts, end = [0], 0
    for entries in tensors:
        offset, length = int(entries["offset"].value), int(entries["length"].value)
        if offset >= end > starts[-1] and offset + length - starts[-1] > size:
            starts.append(offset)
        end = max(end, offset + length)
    return starts


def _cut_off(data: Path, start: int, target: Path) -> None:
    with data.open("r+b") as source, target.open("wb") as part:
        left, position = data.stat().st_size - start, start
        while left > 0:
            copied = os.copy_file_range(source.fileno(), part.fileno(), left, position)
            if not copied:
                raise OSError(0, "the data file ended early")
            left, position = left - copied, position + copied
        source.truncate(start)
