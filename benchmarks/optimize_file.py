"""`exportguard optimize` on large files beside onnxslim, onnxsim, onnxoptimizer and onnxruntime's offline optimizer.

    python benchmarks/optimize_file.py                       # 4.2 GB; each in a process of its own
    python benchmarks/optimize_file.py --gigabytes 0.5 --with ours onnxslim
    python benchmarks/optimize_file.py --layers 16 32 64 128 # microseconds for each node

The file is an untrained Llama as it was lowered, without any optimization, in a temporary folder that goes afterwards.
CPU time is that of the whole process without the imports; memory is what it holds beside mapped files, at its peak.
Outputs are compared in onnxruntime with those of the file as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
import transformers
from decoders import call_of
from sections import markdown_table

import exportguard

WIDTHS = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4}
NARROW = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
LAYER_BYTES = 4 * (2048 * (2048 + 2 * 256 + 2048 + 3 * 5632))
TOOLS = ("ours", "ours, for onnxruntime", "onnxslim", "onnxsim", "onnxoptimizer", "onnxruntime")


def model_of(layers: int, widths: dict[str, int]) -> transformers.PreTrainedModel:
    """A Llama whose weights are a few rows, shown again and again: the file has them all, this process has not."""
    config = transformers.LlamaConfig(**widths, num_hidden_layers=layers, vocab_size=256, max_position_embeddings=4096)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.manual_seed(0)
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            rows = torch.randn(1, *weight.shape[1:]) / weight.shape[-1] ** 0.5 if weight.dim() > 1 else torch.ones(1)
            setattr(module, name, torch.nn.Parameter(rows.expand(weight.shape), requires_grad=False))
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model


def lowered(layers: int, widths: dict[str, int]) -> exportguard.OnnxModel:
    """The model as it was lowered."""
    model = model_of(layers, widths)
    inputs, shapes = call_of(model)
    return exportguard.to_onnx(model, kwargs=inputs, dynamic_shapes=shapes, optimize=False)


# ------------------------------------------------------------------------------------------------ the tools


def run_tool(tool: str, source: Path, target: Path) -> tuple[Callable[[], Any], int]:
    """What is to be measured, and the size of the memory before it."""
    if tool.startswith("ours"):
        return lambda: _ours(source, target, "onnxruntime" if "," in tool else "portable"), anonymous_kib()
    if tool == "onnxslim":
        import onnxslim

        return lambda: onnxslim.slim(str(source), str(target), save_as_external_data=True), anonymous_kib()
    if tool == "onnxsim":
        import onnx
        import onnxsim

        def simplify() -> None:
            model, _ = onnxsim.simplify(onnx.load(source))
            onnx.save(model, target, save_as_external_data=True)

        return simplify, anonymous_kib()
    if tool == "onnxoptimizer":
        import onnx
        import onnxoptimizer

        def optimize() -> None:
            onnx.save(onnxoptimizer.optimize(onnx.load(source)), target, save_as_external_data=True)

        return optimize, anonymous_kib()
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{target.name}.data")
    return lambda: ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"]), anonymous_kib()


def _ours(source: Path, target: Path, runtime: exportguard.optimization.Target) -> None:
    model = exportguard.load(source)
    model.infer_types()
    model.optimize(target=runtime)
    model.save(target)


def anonymous_kib() -> int:
    """Memory of this process that is no mapped file."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


class Peak:
    """The most memory that a block takes, looked at a hundred times a second."""

    def __enter__(self) -> Peak:
        self.kib = anonymous_kib()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.01):
            self.kib = max(self.kib, anonymous_kib())


def measured_here(tool: str, source: Path, target: Path) -> dict[str, float]:
    """CPU seconds and MiB."""
    run, before = run_tool(tool, source, target)
    with Peak() as peak:
        begin = time.process_time()
        run()
        seconds = time.process_time() - begin
    return {"seconds": seconds, "peak": (peak.kib - before) / 1024}


# ------------------------------------------------------------------------------------------------ comparison


def outputs_of(path: Path) -> list[np.ndarray]:
    """Two tokens behind a past of three."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    values: dict[str, np.ndarray] = {}
    for value in session.get_inputs():
        if value.name == "input_ids":
            values[value.name] = np.array([[5, 7]])
        elif value.name == "attention_mask":
            values[value.name] = np.ones((1, 5), np.int64)
        else:
            values[value.name] = random.standard_normal((1, value.shape[1], 3, value.shape[3]), np.float32)
    return session.run(None, values)


def compared_here(source: Path, target: Path) -> float:
    """The largest difference of any output."""
    pairs = zip(outputs_of(source), outputs_of(target), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


# ------------------------------------------------------------------------------------------------ tables


def in_a_process(arguments: Sequence[str], seconds: float) -> Any:
    """What this program prints as JSON with other arguments, or the last line of its error."""
    command = [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:120]
    return json.loads(done.stdout.splitlines()[-1])


def row(tool: str, source: Path, folder: Path, options: argparse.Namespace) -> Sequence[str]:
    """One tool on the file; what it wrote is removed."""
    target = folder / "out" / "model.onnx"
    target.parent.mkdir()
    try:
        result = in_a_process(["--measure", tool, str(source), str(target)], options.seconds)
        if isinstance(result, str):
            return tool, "", "", "", result
        differs = in_a_process(["--compare", str(source), str(target)], options.seconds) if options.compare else ""
        nodes = exportguard.load(target).node_count
        shown = differs if isinstance(differs, str) else f"{differs:.1e}"
        return tool, f"{result['seconds']:.2f}", f"{result['peak']:.0f}", str(nodes), shown
    finally:
        for file in target.parent.iterdir():
            file.unlink()
        target.parent.rmdir()


def large(options: argparse.Namespace) -> None:
    """The table of tools."""
    layers = max(1, round(options.gigabytes * 1e9 / LAYER_BYTES))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source = Path(name) / "lowered.onnx"
        model = lowered(layers, WIDTHS)
        model.save(source)
        written = sum(file.stat().st_size for file in Path(name).iterdir())
        print(f"{layers} layers, {model.node_count} nodes, {written / 1e9:.2f} GB\n", flush=True)
        rows = [row(tool, source, Path(name), options) for tool in options.tools]
    print(markdown_table(("tool", "CPU s", "peak MiB beside mapped files", "nodes", "differs"), rows))


def deep(options: argparse.Namespace) -> None:
    """Microseconds for each node."""
    rows = []
    for layers in options.layers:
        model = lowered(layers, NARROW)
        report = model.optimize(target="onnxruntime")
        each = 1e6 * report.seconds / report.nodes_before
        rows.append((str(layers), str(report.nodes_before), str(report.nodes_after), f"{each:.0f}"))
    print(markdown_table(("layers", "nodes before", "after", "us a node"), rows))


def main() -> None:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4.2)
    parser.add_argument("--with", dest="tools", nargs="+", default=list(TOOLS), choices=TOOLS)
    parser.add_argument("--layers", type=int, nargs="+", default=[])
    parser.add_argument("--folder", type=Path, default=None, help="where the files are written")
    parser.add_argument("--seconds", type=float, default=1200, help="after which a tool is stopped")
    parser.add_argument("--no-compare", dest="compare", action="store_false", help="runs no model")
    parser.add_argument("--measure", nargs=3, default=None, help="one tool: its name, a file, the file to write")
    parser.add_argument("--compare", dest="pair", nargs=2, type=Path, default=None, help="two files")
    options = parser.parse_args()
    if options.measure:
        tool, source, target = options.measure
        print(json.dumps(measured_here(tool, Path(source), Path(target))))
    elif options.pair:
        print(json.dumps(compared_here(*options.pair)))
    elif options.layers:
        deep(options)
    else:
        large(options)


if __name__ == "__main__":
    main()
