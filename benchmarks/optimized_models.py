"""Nodes and CPU time in onnxruntime of models in several forms, interleaved on one thread.

    python benchmarks/optimized_models.py [bert vit ...] [--rounds 40] [--no-peers] [--operators]

Forms: as lowered, optimized, optimized for onnxruntime; beside them torch.onnx with its optimizer, and what onnxslim
(if it is installed) and onnxruntime's own optimizer of transformers make of that. Each runs on the inputs that the
model was traced with; the last column is the least time of ours by the least of the best other form. Of a form that
cannot be made or loaded there is the reason, and one with other answers is not counted as the best.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib.util
import inspect
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnxruntime.transformers import optimizer as transformer_optimizer
from plain_models import MODELS, Case
from turns import milliseconds

import exportguard
from exportguard import torch_export_patches
from exportguard.cache_names import cache_argument
from exportguard.conversion import convert
from exportguard.opsets import checked_opset
from exportguard.reading import read
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

SAME = 1e-2  # the largest difference of the outputs of one model
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


def by_torch(case: Case) -> onnx.ModelProto:
    """The same program through torch.onnx.

    Raises:
        RuntimeError: it makes nothing of it.
    """
    exported = exported_module(
        ExportRequest.of(case.module, (), case.inputs, dynamic_shapes=case.shapes, options=ExportOptions())
    )
    with torch_export_patches(), torch.no_grad():
        program = torch.onnx.export(exported.expanded(), dynamo=True, verbose=False, optimize=True)
    if program is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    return onnx.ModelProto.FromString(program.model_proto.SerializeToString())


def by_onnxslim(model: onnx.ModelProto) -> onnx.ModelProto:
    """What onnxslim makes of it."""
    onnxslim: Any = importlib.import_module("onnxslim")
    slim: onnx.ModelProto = onnxslim.slim(onnx.ModelProto.FromString(model.SerializeToString()))
    return slim


def by_onnxruntime(name: str, case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    """What `onnxruntime.transformers.optimizer` makes of it: as its own kind of model where it has one of that name,
    decoders as the kind that is for Qwen3, all others as that which it takes without being told.
    """
    decodes = cache_argument(case.module.forward) in case.inputs
    kind = name if name in transformer_optimizer.MODEL_TYPES else "qwen3" if decodes else "bert"
    config = getattr(case.module, "config", None)
    sizes = {
        "num_heads": getattr(config, "num_attention_heads", 0) or 0,
        "hidden_size": getattr(config, "hidden_size", 0) or 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        optimized: onnx.ModelProto = transformer_optimizer.optimize_model(str(path), model_type=kind, **sizes).model
    return optimized


class Forms:
    """Models that onnxruntime loads, and why others are not among them."""

    def __init__(self) -> None:
        self.models: dict[str, onnx.ModelProto] = {}
        self.sessions: dict[str, ort.InferenceSession] = {}
        self.reasons: dict[str, str] = {}

    def take(self, form: str, model: onnx.ModelProto) -> None:
        """Loads one."""
        self.sessions[form] = session_of(model)
        self.models[form] = model

    def try_to_make(self, form: str, make: Callable[[], onnx.ModelProto]) -> None:
        """Makes and loads one of a peer; peers and the runtime raise whatever they like."""
        try:
            self.take(form, make())
        except Exception as error:
            self.reasons[form] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def add_peers(name: str, case: Case, forms: Forms) -> None:
    """torch.onnx, and what optimizers make of its file."""
    forms.try_to_make("torch.onnx", lambda: by_torch(case))
    if "torch.onnx" not in forms.models:
        return
    model = forms.models["torch.onnx"]
    if importlib.util.find_spec("onnxslim"):
        forms.try_to_make("onnxslim", lambda: by_onnxslim(model))
    forms.try_to_make("ort transformers", lambda: by_onnxruntime(name, case, model))


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
    calls = {name: functools.partial(session.run, None, feeds[name]) for name, session in sessions.items()}
    return milliseconds(calls, rounds)


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
    forms = Forms()
    for form, model in own_forms(case).items():
        forms.take(form, model)
    if arguments.peers:
        add_peers(name, case, forms)
    times = times_of(case, forms.sessions, arguments.rounds)
    differs = {form: difference(case, forms.sessions, form) for form in times}
    others = [min(taken) for form, taken in times.items() if form not in OWN and differs[form] < SAME]
    for form, taken in times.items():
        beside = f"  {min(taken) / min(others):.2f} of the best other" if others and form in OWN else ""
        print(
            f"{name:10} {form:16} {node_count(forms.models[form]):5} nodes  median {statistics.median(taken):8.3f} ms  "
            f"least {min(taken):8.3f}  differs {differs[form]:.0e}{beside}",
            flush=True,
        )
        if arguments.operators:
            print("          ", dict(collections.Counter(node.op_type for node in forms.models[form].graph.node)))
    for form, reason in forms.reasons.items():
        print(f"{name:10} {form:16} cannot be run: {reason}", flush=True)


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
