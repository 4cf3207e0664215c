"""Which opsets can be written, and which one is written when the user names none."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgumentError

MIN_OPSET = 18
MAX_OPSET = 25

# A model of one node, in the text format of the IR.
_PROBE = "graph(%x: f32[n]):\n  %y: f32[n] = Identity(%x)\n  return (%y)\n"

_WITH_ATTENTION = 23

# Queries that see no key, which are to give zeros (NaN in onnxruntime 1.23, the mean of the values up to 1.27), and a
# hidden key beside a softcap, which is to stay hidden: ONNX first had the softcap behind the mask, and so has
# onnxruntime up to 1.26 (https://github.com/microsoft/onnxruntime/pull/28379).
_ATTENTION = """graph(%query: f32[1,1,1,1], %keys: f32[1,1,2,1], %seen: bool[1,2], %added: f32[1,2]):
  %blind: f32[1,1,1,1] = Attention(%query, %keys, %keys, %seen) {scale=1.0}
  %capped: f32[1,1,1,1] = Attention(%query, %keys, %keys, %added) {scale=1.0, softcap=1.0}
  return (%blind, %capped)
"""


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
    """The newest opset that the installed onnxruntime runs right; without it the newest that can be written."""
    newest = min(MAX_OPSET, _core.newest_opset())
    if importlib.util.find_spec("onnxruntime") is None:
        return newest
    return next((opset for opset in range(newest, MIN_OPSET, -1) if _runs(opset)), MIN_OPSET)


def _runs(opset: int) -> bool:
    """Whether onnxruntime loads a model of that opset, as it does none that is newer than itself, and computes the
    attention that there is in it as torch does, with a kernel of its own."""
    if _session(_PROBE, opset) is None:
        return False
    return opset < _WITH_ATTENTION or (_attends(opset) and has_attention_kernel(opset))


def _session(text: str, opset: int, written: Path | None = None) -> Any:
    """A session of a model in the text format; None if onnxruntime has no kernel for it, or not this opset.

    What it makes of the model is left at `written`.
    """
    import onnxruntime

    model = _core.Model.parse(text)
    _core.lower(model, opset=opset)
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of whatever it writes
    if written:
        options.optimized_model_filepath = str(written)
    try:
        return onnxruntime.InferenceSession(
            _core.to_bytes(model), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except (errors.Fail, errors.NotImplemented, errors.InvalidGraph):
        return None


def has_attention_kernel(opset: int) -> bool:
    """Whether onnxruntime runs the `Attention` of that opset as one operator.

    Where it has no kernel for the operator's newest version, it writes out the operator's definition instead, some
    fifty nodes, and a model takes longer: 1.32 has kernels for those of opsets 23 and 24, and not for
    that of 25.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "written.onnx"
        if _session(_ATTENTION, opset, written) is None:
            return False
        return " = Attention(" in _core.from_bytes(written.read_bytes()).text()


def _attends(opset: int) -> bool:
    answers = attention_answers(opset)
    return answers is not None and answers[0] == 0 and abs(answers[1] - 1) < 1e-5


def attention_answers(opset: int) -> tuple[float, float] | None:
    """What onnxruntime gives for a query that sees no key, 0 in torch, and for a hidden key beside a softcap, 1; None
    if it has no kernel."""
    session = _session(_ATTENTION, opset)
    if session is None:
        return None
    keys = np.array([1, 3], np.float32).reshape(1, 1, 2, 1)
    masks = {"seen": np.zeros((1, 2), bool), "added": np.array([[0, -np.inf]], np.float32)}
    blind, capped = session.run(None, {"query": keys[:, :, :1], "keys": keys, **masks})
    return blind.item(), capped.item()
