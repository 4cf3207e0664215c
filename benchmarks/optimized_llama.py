"""One Llama with and without the optimizer, in onnxruntime, interleaved on one thread.

python benchmarks/optimized_llama.py [--layers 16] [--hidden 64] [--rounds 40]

Prints the nodes, the time of the optimization for each node, and for each setting the median and least CPU time.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time

import numpy as np
import onnxruntime as ort
import torch
import transformers
from decoders import call_of
from turns import milliseconds

import exportguard

SETTINGS = {"one token behind 128": (1, 1, 128), "prefill of 128": (1, 128, 0), "batch 4 behind 2,000": (4, 1, 2000)}


def llama(layers: int, hidden: int) -> torch.nn.Module:
    """An untrained Llama with grouped heads."""
    config = transformers.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def forms_of(model: torch.nn.Module) -> dict[str, exportguard.OnnxModel]:
    """The model with its cache in three forms; every size but the widths changes."""
    inputs, shapes = call_of(model, mask="total")
    forms = {}
    for name, optimize in (("lowered", False), ("standard", True), ("onnxruntime", "onnxruntime")):
        forms[name] = exportguard.to_onnx(model, kwargs=inputs, dynamic_shapes=shapes, optimize=optimize)
    return forms


def session_of(model: exportguard.OnnxModel) -> ort.InferenceSession:
    """One thread, no spinning."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.to_bytes(), options, providers=["CPUExecutionProvider"])


def feeds(session: ort.InferenceSession, batch: int, new: int, past: int) -> dict[str, np.ndarray]:
    """Random caches, a mask of ones."""
    random = np.random.default_rng(0)
    values = {}
    for value in session.get_inputs():
        if value.name == "input_ids":
            values[value.name] = random.integers(0, 256, (batch, new))
        elif value.name == "attention_mask":
            values[value.name] = np.ones((batch, past + new), np.int64)
        else:
            values[value.name] = random.standard_normal((batch, value.shape[1], past, value.shape[3]), np.float32)
    return values


def measure(
    sessions: dict[str, ort.InferenceSession], setting: tuple[int, int, int], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of CPU time of each round."""
    given = {name: feeds(session, *setting) for name, session in sessions.items()}
    calls = {name: functools.partial(session.run, None, given[name]) for name, session in sessions.items()}
    return milliseconds(calls, rounds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    forms = forms_of(llama(arguments.layers, arguments.hidden))
    sessions = {}
    for name, model in forms.items():
        begin = time.process_time()
        sessions[name] = session_of(model)
        loading = 1e3 * (time.process_time() - begin)
        report = model.report()
        each = f", {1e6 * report.seconds / report.nodes_before:.0f} us a node" if report else ""
        print(f"{name}: {model.node_count} nodes{each}, loaded in {loading:.0f} ms")
    for label, setting in SETTINGS.items():
        for name, taken in measure(sessions, setting, arguments.rounds).items():
            print(f"{label}: {name} median {statistics.median(taken):.2f} ms, least {min(taken):.2f} ms")


if __name__ == "__main__":
    main()
