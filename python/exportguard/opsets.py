"""Which opsets can be written, and which one is written when the user names none."""

from __future__ import annotations

import functools
import importlib.util

from . import _core
from .errors import InvalidArgumentError

MIN_OPSET = 18
MAX_OPSET = 25

# A model of one node, in the text format of the IR.
_PROBE = "graph(%x: f32[n]):\n  %y: f32[n] = Identity(%x)\n  return (%y)\n"


def checked_opset(opset: int | None) -> int:
    """`opset` itself, or the default for None.

    Raises:
        InvalidArgumentError: out of bounds.
    """
    if opset is None:
        return default_opset()
    if isinstance(opset, bool) or not isinstance(opset, int) or not MIN_OPSET <= opset <= MAX_OPSET:
        remedy = f"pass opset={MIN_OPSET} or more" if isinstance(opset, int) and opset < MIN_OPSET else "pass None"
        raise InvalidArgumentError(f"opset must be between {MIN_OPSET} and {MAX_OPSET}, got {opset!r}; {remedy}")
    return opset


def opset_of(text: str | None) -> int | None:
    """The opset of a command line's word: a number, or "newest" for the newest that runs.

    Raises:
        InvalidArgumentError: neither, or out of bounds.
    """
    if text is None:
        return None
    if text == "newest":
        return default_opset()
    if not text.isascii() or not text.isdigit():
        raise InvalidArgumentError(
            f"--opset is a number from {MIN_OPSET} to {MAX_OPSET} or the word newest, got {text!r}"
        )
    return checked_opset(int(text))


@functools.cache
def default_opset() -> int:
    """The newest opset that the installed onnxruntime runs; without onnxruntime the newest that can be written."""
    newest = min(MAX_OPSET, _core.newest_opset())
    if importlib.util.find_spec("onnxruntime") is None:
        return newest
    return next((opset for opset in range(newest, MIN_OPSET, -1) if _runs(opset)), MIN_OPSET)


def _runs(opset: int) -> bool:
    """Whether onnxruntime loads a model of that opset: it refuses those that are newer than itself."""
    import onnxruntime

    model = _core.Model.parse(_PROBE)
    _core.lower(model, opset=opset)
    try:
        onnxruntime.InferenceSession(_core.to_bytes(model), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return False
    return True
