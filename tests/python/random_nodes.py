"""Runs random models of one operator in the evaluator, onnxruntime and onnx's reference, and tells what differs.

    python tests/python/random_nodes.py --count 5000 --first 0 [--only Resize Slice]

A difference counts where another one contradicts the evaluator and none agrees with it: what onnxruntime alone does
otherwise is its own.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator

import exportguard
from exportguard import _core
from node_generator import Node, random_node

TOLERANCES: dict[Any, float] = {np.float64: 1e-6, np.float32: 2e-4, np.float16: 1e-2, ml_dtypes.bfloat16: 6e-2}
onnxruntime.set_default_logger_severity(4)

Outputs = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Answer:
    """What one runner made of a model, or why it did not."""

    outputs: Outputs | None
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    kind: str  # right, wrong, refused, runtime, unknown, invalid
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.kind in ("wrong", "refused")


def to_torch(value: np.ndarray[Any, Any]) -> torch.Tensor:
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(value.view(np.int16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.contiguous().numpy()


def in_evaluator(data: bytes, node: Node) -> Answer:
    try:
        feeds = [to_torch(value) for value in node.feeds().values()]
        return Answer([to_numpy(value) for value in _core.Evaluator(exportguard.load(data)._core).run(feeds)])
    except exportguard.ExportGuardError as error:
        return Answer(None, str(error))


def in_onnxruntime(data: bytes, node: Node) -> Answer:
    if any(value.dtype == ml_dtypes.bfloat16 for value in node.feeds().values()):
        return Answer(None, "numpy has no bfloat16")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return Answer(list(session.run(None, node.feeds())))
    except Exception as error:  # onnxruntime has no common base for its own
        return Answer(None, str(error).splitlines()[0])


def in_reference(model: onnx.ModelProto, node: Node) -> Answer:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return Answer([np.asarray(value) for value in ReferenceEvaluator(model).run(None, node.feeds())])
    except Exception as error:  # numpy's and its own
        return Answer(None, f"{type(error).__name__}: {error}")


def difference(expected: Outputs, got: Outputs) -> str:
    """Where the two part; empty where they do not."""
    for position, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {position}: {b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        own = TOLERANCES.get(a.dtype.type)
        if own is None:
            wrong = a != b
        else:
            x, y = a.astype(np.float64), b.astype(np.float64)
            finite = np.abs(x[np.isfinite(x)])
            bound = own * (1 + np.abs(x)) + own * 0.1 * (finite.max() if finite.size else 0)
            with np.errstate(all="ignore"):
                wrong = ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= bound))
                wrong |= np.isinf(x) != np.isinf(y)
        if np.any(wrong):
            at = tuple(int(one[0]) for one in np.nonzero(np.atleast_1d(wrong)))
            return f"output {position} at {at}: {np.atleast_1d(b)[at]} instead of {np.atleast_1d(a)[at]}"
    return ""


def verdict_of(seed: int, operator: str = "") -> tuple[Verdict, Node | None]:
    drawn = random_node(seed, operator)
    if drawn is None:
        return Verdict("invalid"), None
    node, opset = drawn
    try:
        model = node.model(opset)
    except Exception as error:  # the inference's own
        return Verdict("invalid", str(error).splitlines()[0]), node
    data = model.SerializeToString()
    mine, theirs, reference = in_evaluator(data, node), in_onnxruntime(data, node), in_reference(model, node)
    told = f"opset {opset} {node}"
    others = [one for one in (theirs, reference) if one.outputs is not None]
    if mine.outputs is None:
        if not others:
            return Verdict("invalid", f"{told}: {mine.error}"), node
        agree = len(others) == 2 and not difference(others[0].outputs or [], others[1].outputs or [])
        return Verdict("refused" if agree else "unknown", f"{told}: {mine.error}"), node
    by_runtime = difference(theirs.outputs, mine.outputs) if theirs.outputs is not None else None
    by_reference = difference(reference.outputs, mine.outputs) if reference.outputs is not None else None
    if by_runtime == "" or by_reference == "":
        return Verdict("runtime" if by_runtime else "right", f"{told}: {by_runtime or by_reference}"), node
    if by_runtime is None and by_reference is None:
        return Verdict("unknown", f"{told}: ran here alone: {theirs.error} | {reference.error}"), node
    if by_runtime is not None:
        return Verdict(
            "wrong", f"{told}: {by_runtime} (onnxruntime); reference: {by_reference or reference.error}"
        ), node
    return Verdict("unlike", f"{told}: {by_reference} (reference); onnxruntime: {theirs.error}"), node


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--show", nargs="*", default=["wrong", "refused"])
    options = parser.parse_args()
    kinds: collections.Counter[str] = collections.Counter()
    for seed in range(options.first, options.first + options.count):
        for operator in options.only:
            verdict, _ = verdict_of(seed, operator)
            kinds[verdict.kind] += 1
            if verdict.kind in options.show:
                print(f"{verdict.kind} (seed {seed}): {verdict.detail[:600]}", flush=True)
    print(dict(kinds))
    return 1 if kinds["wrong"] or kinds["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
