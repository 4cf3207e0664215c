"""Tensors by name in a file: safetensors, written and read without another package, and numpy's npz, read."""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy
import torch

from ..errors import FileError, InvalidArgumentError

_NAMES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = struct.Struct("<Q")  # of the header, which comes first


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Writes a safetensors file.

    Raises:
        InvalidArgumentError: a dtype that the format does not have.
        FileError: it cannot be written.
    """
    header: dict[str, object] = {}
    parts: list[bytes] = []
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise InvalidArgumentError(f"{name} is of dtype {tensor.dtype}, which a safetensors file cannot hold")
        dense = tensor.detach().cpu().contiguous().reshape(-1)
        part = dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(part)],
        }
        offset += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        path.write_bytes(b"".join((_LENGTH.pack(len(text)), text, *parts)))
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}") from error


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Reads a `.safetensors` or an `.npz` file.

    Raises:
        FileError: it cannot be read, or is of another kind.
    """
    if path.suffix not in (".safetensors", ".npz"):
        raise FileError(f"cannot read tensors from {path}: its name must end in .safetensors or .npz")
    try:
        return _from_npz(path) if path.suffix == ".npz" else _from_safetensors(path.read_bytes(), path)
    except FileError:  # an OSError, too
        raise
    except OSError as error:
        raise FileError(f"cannot read tensors from {path}: {error.strerror or error}") from error


def _from_npz(path: Path) -> dict[str, torch.Tensor]:
    try:
        with numpy.load(path) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = "it is no file of numpy.savez with arrays of numbers"
        raise FileError(f"cannot read tensors from {path}: {reason}") from error


def _from_safetensors(data: bytes, path: Path) -> dict[str, torch.Tensor]:
    try:
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        if len(data) < start:
            raise ValueError(f"{len(data)} bytes, and {start} for the header alone")
        header = json.loads(data[_LENGTH.size : start])
        return {name: _tensor(entry, data[start:]) for name, entry in header.items() if name != "__metadata__"}
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise FileError(f"cannot read tensors from {path}: it is no whole safetensors file ({error})") from error


def _tensor(entry: Mapping[str, object], data: bytes) -> torch.Tensor:
    dtype, shape, offsets = _DTYPES[str(entry["dtype"])], entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        raise ValueError("shape and data_offsets must be lists")
    part = data[offsets[0] : offsets[1]]
    if len(part) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(part)} bytes for {shape} of {dtype}")
    return torch.frombuffer(bytearray(part), dtype=dtype).reshape(shape) if part else torch.empty(shape, dtype=dtype)
