"""Names of element types: torch's, ONNX's, and the short ones that this package writes."""

from __future__ import annotations

import torch

from . import _core
from .errors import InvalidArgumentError

# ONNX's name of each short one, as in `tensor(float)`.
ONNX_NAMES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
    "string": "string",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8e4m3fn",
    "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz",
    "u4": "uint4",
    "i4": "int4",
    "f4e2m1": "float4e2m1",
    "f8e8m0": "float8e8m0",
    "u2": "uint2",
    "i2": "int2",
}
SHORT_NAMES = {long: short for short, long in ONNX_NAMES.items()}


def dtype_name(dtype: str | torch.dtype) -> str:
    """The short name: `f32` of `torch.float32`, `float` and `f32`.

    Raises:
        InvalidArgumentError: for another text, with those that there are.
    """
    if isinstance(dtype, torch.dtype):
        return _core.dtype_name(dtype)
    text = dtype.removeprefix("torch.")
    short = text if text in ONNX_NAMES else SHORT_NAMES.get(text)
    if short is not None:
        return short
    found = getattr(torch, text, None)
    if isinstance(found, torch.dtype):
        return _core.dtype_name(found)
    raise InvalidArgumentError(f"dtype must be a torch.dtype or one of {', '.join(ONNX_NAMES)}, got {dtype!r}")


def short_type(text: str) -> str:
    """`f32` of `tensor(float)`, `seq(f32)` of `seq(tensor(float))`."""
    for prefix in ("seq(", "optional("):
        if text.startswith(prefix):
            return f"{prefix}{short_type(text[len(prefix) : -1])})"
    inner = text.removeprefix("tensor(").removesuffix(")")
    return SHORT_NAMES.get(inner, inner)
