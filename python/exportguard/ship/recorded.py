"""Inputs and outputs that stand beside an exported file: with them it is proved again without the original."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from exportguard.axes.rounding import coarser
from exportguard.errors import FileError
from exportguard.models.catalogue import DTYPES
from exportguard.runners.evaluator import EvaluatorSession
from exportguard.runners.onnxruntime import OrtSession
from exportguard.validation.discrepancies import Tolerance, compare_outputs, tolerance_for
from exportguard.validation.set_result import SetResult
from exportguard.validation.validate import ValidationReport

from .digests import changes_since
from .layout import file_of
from .sessions import Call, called, session_of
from .staging import REPORT

EXAMPLES = "examples.pt"

#: What a report has, of which a validation tells.
_TOLD = {"task", "opset", "dtype", "inputs", "outputs", "node_count", "parameters"}

Feeds = Mapping[str, torch.Tensor]
Runner = Literal["onnxruntime", "evaluator"]


def calls_again(folder: Path, inputs: Mapping[str, Sequence[Feeds]]) -> dict[str, list[Call]]:
    """What each file in the folder returns for its inputs as it is now."""
    calls: dict[str, list[Call]] = {}
    for name, given in inputs.items():
        session = session_of(folder / name)
        calls[name] = [called(session, feeds) for feeds in given]
    return calls


def record(folder: Path, calls: Mapping[str, Sequence[Call]]) -> None:
    """Keeps the calls of each file beside it; to be called when the files are proved."""
    kept = [
        {"file": name, "inputs": dict(call.inputs), "outputs": dict(call.outputs)}
        for name, of_file in calls.items()
        for call in of_file
    ]
    with (folder / EXAMPLES).open("wb") as file:  # whose errors say what the disk does not take, unlike torch's own
        torch.save(kept, file)


def is_export(model: str) -> bool:
    """Whether the name is that of a folder that `exportguard export` wrote; what else it wrote may be lost."""
    return "\0" not in model and any((Path(model) / name).is_file() for name in (REPORT, EXAMPLES))


def validate_export(
    folder: Path, runner: Runner = "onnxruntime", tolerance: Tolerance | None = None
) -> ValidationReport:
    """Runs the file of an export on what was recorded with it, and compares; without `tolerance` that of each dtype.
    A file that is another than the one that was written is a failure, whatever it gives.

    Raises:
        FileError: the folder is none of `exportguard export`, or what was recorded cannot be read.
    """
    told, calls = _read(folder)
    report = ValidationReport(
        model=str(folder),
        task=told["task"],
        exporter="exportguard",
        opset=told["opset"],
        dtype=told["dtype"],
        device="cpu",
        runner=runner,
    )
    report.inputs, report.outputs = list(told["inputs"]), list(told["outputs"])
    report.node_count, report.parameters = told["node_count"], told["parameters"]
    try:
        report.sets = _compared_all(folder, calls, runner, tolerance, DTYPES.get(told["dtype"]))
    except Exception as error:  # runtimes have no common base for their own
        report.failure = f"{type(error).__name__}: {error}"
    changes = list(changes_since(folder, _proved_files(told)))
    if changes:  # which is why it may not have run
        report.failure = f"{'; '.join(changes)}; copy the folder again, or export it again"
    return report


def _proved_files(told: Mapping[str, Any]) -> dict[str, str | None]:
    """The digests of the ONNX files, their weights, and the calls; configurations are for people to change."""
    digests = told.get("sha256", {})
    return {name: digest for name, digest in digests.items() if name == EXAMPLES or ".onnx" in Path(name).name}


def compared_again(folder: Path) -> list[SetResult]:
    """The file in the folder on what was recorded, before and after it was changed."""
    return _compared_all(folder, torch.load(folder / EXAMPLES, weights_only=True), "onnxruntime")


def _compared_all(
    folder: Path,
    calls: Sequence[Mapping[str, Any]],
    runner: Runner,
    tolerance: Tolerance | None = None,
    computed_in: torch.dtype | None = None,
) -> list[SetResult]:
    sessions: dict[str, OrtSession | EvaluatorSession] = {}
    results = []
    for number, call in enumerate(calls):
        name: str = call["file"]
        if name not in sessions:
            file = file_of(folder, name)
            sessions[name] = session_of(file) if runner == "onnxruntime" else EvaluatorSession(file)
        names, expected = list(call["outputs"]), list(call["outputs"].values())
        bounds = tolerance or [_tolerance(value, computed_in) for value in expected]
        outputs = compare_outputs(names, expected, sessions[name].run(call["inputs"]), bounds)
        results.append(SetResult(name=f"recorded {number}", sizes={}, outputs=outputs))
    return results


def _tolerance(value: torch.Tensor, computed_in: torch.dtype | None) -> Tolerance:
    """Of float32 that was computed in half precision that of the latter."""
    return tolerance_for(coarser(value.dtype, computed_in) or value.dtype if value.is_floating_point() else value.dtype)


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path = folder / REPORT
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        path = folder / EXAMPLES
        calls = torch.load(path, weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else "is not whole"
        raise FileError(f"{folder} cannot be validated: {path.name} {what}; export it again with --verify") from error
    if not isinstance(told, dict) or not told.keys() >= _TOLD or not isinstance(told.get("sha256", {}), dict):
        raise FileError(f"{folder} cannot be validated: {REPORT} is not whole; export it again")
    if not isinstance(calls, list) or not calls or not all(map(_is_call, calls)):
        raise FileError(f"{folder} cannot be validated: {EXAMPLES} has no calls; export it again")
    return told, calls


def _is_call(call: object) -> bool:
    """Whether it is one that `record` wrote, with something to compare."""
    return (
        isinstance(call, dict)
        and isinstance(call.get("file"), str)
        and all(isinstance(call.get(side), dict) and call[side] for side in ("inputs", "outputs"))
    )
