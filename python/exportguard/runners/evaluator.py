"""Runs an ONNX model with torch's kernels: every dtype and device that torch has, bfloat16 and float8 included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .. import _core
from ..arguments import require_named
from ..devices import require_device
from .memory import require_readable
from .names import require_same


class EvaluatorSession:
    """A loaded model. `run` takes and returns torch tensors; sequences are lists, an empty optional is None.

    A tensor of strings is a `_core.Strings`. Integers of less than a byte are int8 or uint8, one element to a byte.
    """

    def __init__(self, model: _core.Model | bytes | str | Path, device: str = "cpu") -> None:
        """Loads a file or the bytes of a model, or takes one that is loaded.

        Raises:
            InvalidArgumentError: torch knows no such device, or cannot use it here.
            ExportGuardError: operators without an implementation, all of them by name.
            FileError: what cannot be read.
        """
        self._core = _loaded(model)
        if device.partition(":")[0] == "cuda":
            require_device(device)
        self._evaluator = _core.Evaluator(self._core, device)
        self.input_names: list[str] = [name for name, _, _, _ in self._core.inputs]
        self.output_names: list[str] = [name for name, _, _, _ in self._core.outputs]

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs in order. Inputs are moved to the session's device.

        Raises:
            InvalidArgumentError: an input is missing, unknown, or of another dtype, rank or size than the model says.
            ExportGuardError: a node cannot be run, with its place in the user's model and its inputs.
        """
        require_named("inputs", inputs)
        require_same(self.input_names, list(inputs))
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                require_readable(name, value)
        return self._evaluator.run([inputs[name] for name in self.input_names])


def _loaded(model: _core.Model | bytes | str | Path) -> _core.Model:
    if isinstance(model, _core.Model):
        return model
    return _core.from_bytes(model) if isinstance(model, bytes) else _core.load(model)
