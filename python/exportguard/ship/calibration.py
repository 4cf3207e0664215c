"""Between which numbers the values of a file lie when it is run on examples."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from exportguard.errors import FileError
from exportguard.optional import OptionalModule

from .sessions import session_of

onnx: Any = OptionalModule("onnx")

Ranges = Mapping[str, tuple[float, float]]


def ranges_of(file: Path, names: Sequence[str], calls: Sequence[Mapping[str, torch.Tensor]]) -> Ranges:
    """The smallest and the largest number of each value of the main graph over all calls, zero among them.

    Values without a number in any call, or with one that is not finite, are left out.
    """
    model = onnx.load(str(file), load_external_data=False)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    watched = file.with_name(f"{file.stem}.watched.onnx")  # beside the weights that it shares
    try:
        onnx.save(model, str(watched))
        return _ranges(session_of(watched), calls) if names else {}
    finally:
        watched.unlink(missing_ok=True)


def examples_in(path: Path) -> list[dict[str, torch.Tensor]]:
    """What `torch.save` wrote: a list with the inputs of a call by name, for each of several calls.

    Raises:
        FileError: it cannot be read, or is something else.
    """
    try:
        examples = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no file of torch.save with tensors alone"
        raise FileError(f"cannot read the examples in {path}: {reason}") from error
    is_list = isinstance(examples, list) and examples
    if not is_list or not all(isinstance(call, dict) and _are_tensors(call) for call in examples):
        raise FileError(
            f"{path} has no examples: it must be a list of dictionaries with a tensor for each input, by torch.save"
        )
    return list(examples)


def _are_tensors(call: Mapping[object, object]) -> bool:
    return all(isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in call.items())


def _ranges(session: Any, calls: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    refused: set[str] = set()
    for feeds in calls:
        session.require_fitting(feeds)
        for name, value in zip(session.output_names, session.run(feeds), strict=True):
            if not value.isfinite().all():
                refused.add(name)
            elif value.numel():
                low, high = found.get(name, (0.0, 0.0))
                found[name] = min(low, value.min().item()), max(high, value.max().item())
    return {name: between for name, between in found.items() if name not in refused}
