"""Nodes and CPU time in onnxruntime of models in several forms, interleaved on one thread.

    python benchmarks/optimized_models.py [bert vit ...] [--rounds 40] [--no-peers] [--operators]

Forms: as lowered, optimized, optimized for onnxruntime; beside them torch.onnx with its optimizer, and what onnxslim
makes of that (if it is installed). Each runs on the inputs that the model was traced with; the last column is the least
time of ours by the least of the best other form.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import inspect
import statistics
import time
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from plain_models import MODELS, Case

import exportguard
from exportguard import torch_export_patches
from exportguard.conversion import convert
from exportguard.opsets import checked_opset
from exportguard.reading import read
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

OWN = {"lowered": False, "standard": True, "onnxruntime": "onnxruntime"}


def own_forms(case: Case) -> dict[str, onnx.ModelProto]:
    """The model as this package writes it."""
    forms = {}
    for name, optimize in OWN.items():
        with torch.no_grad():
            exported = exported_module(
                ExportRequest.of(case.module, (), case.inputs, dynamic_shapes=case.shapes, options=ExportOptions())
            )
        model = convert(read(exported), opset=checked_opset(None), options=ExportOptions(), optimize=optimize)
        forms[name] = onnx.load_from_string(model.to_bytes())
    return forms


def peers(case: Case) -> dict[str, onnx.ModelProto]:
    """The same program through torch.onnx, and through onnxslim behind it; without those that fail."""
    forms: dict[str, onnx.ModelProto] = {}
    exported = exported_module(
        ExportRequest.of(case.module, (), case.inputs, dynamic_shapes=case.shapes, options=ExportOptions())
    )
    with torch_export_patches(), torch.no_grad():
        program = torch.onnx.export(exported.expanded(), dynamo=True, verbose=False, optimize=True)
    if program is not None:
        forms["torch.onnx"] = program.model_proto
    if importlib.util.find_spec("onnxslim") and forms:
        onnxslim: Any = importlib.import_module("onnxslim")
        forms["onnxslim"] = onnxslim.slim(onnx.ModelProto.FromString(forms["torch.onnx"].SerializeToString()))
    return forms


def session_of(model: onnx.ModelProto) -> ort.InferenceSession:
    """One thread, no spinning."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds_of(case: Case, session: ort.InferenceSession) -> dict[str, np.ndarray]:
    """The traced inputs by position: every form has them in the order of forward's signature."""
    given = {
        name: case.inputs[name] for name in inspect.signature(case.module.forward).parameters if name in case.inputs
    }
    with torch_export_patches():
        leaves = torch.utils._pytree.tree_leaves(given)  # the only place that knows registered caches
    tensors = [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return dict(zip([value.name for value in session.get_inputs()], tensors, strict=True))


def times_of(case: Case, sessions: dict[str, ort.InferenceSession], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU time of each round."""
    feeds = {name: feeds_of(case, session) for name, session in sessions.items()}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(rounds):
        for name, session in sessions.items():
            begin = time.process_time()
            session.run(None, feeds[name])
            times[name].append(1e3 * (time.process_time() - begin))
    return times


def node_count(model: onnx.ModelProto) -> int:
    """Nodes of the main graph and of local functions."""
    return len(model.graph.node) + sum(len(function.node) for function in model.functions)


def difference(case: Case, sessions: dict[str, ort.InferenceSession], name: str) -> float:
    """The largest one of the first output to that of the lowered form."""
    first = sessions["lowered"].run(None, feeds_of(case, sessions["lowered"]))[0]
    return float(np.abs(sessions[name].run(None, feeds_of(case, sessions[name]))[0] - first).max())


def report(name: str, arguments: argparse.Namespace) -> None:
    """Prints a line for each form."""
    torch.manual_seed(0)
    case = MODELS[name]()
    models = own_forms(case)
    if arguments.peers:
        models |= peers(case)
    sessions = {form: session_of(model) for form, model in models.items()}
    times = times_of(case, sessions, arguments.rounds)
    others = [min(taken) for form, taken in times.items() if form not in OWN]
    for form, taken in times.items():
        beside = f"  {min(taken) / min(others):.2f} of the best other" if others and form in OWN else ""
        print(
            f"{name:10} {form:12} {node_count(models[form]):5} nodes  median {statistics.median(taken):8.3f} ms  "
            f"least {min(taken):8.3f}  differs {difference(case, sessions, form):.0e}{beside}",
            flush=True,
        )
        if arguments.operators:
            print("          ", dict(collections.Counter(node.op_type for node in models[form].graph.node)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="all of them without a name")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--operators", action="store_true", help="count each operator")
    arguments = parser.parse_args()
    print(f"exportguard {exportguard.__version__}, onnxruntime {ort.__version__}, torch {torch.__version__}")
    for name in arguments.models or MODELS:
        report(name, arguments)


if __name__ == "__main__":
    main()
