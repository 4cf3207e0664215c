"""Conversion and saving beside `torch.onnx.export(program, dynamo=True)`, from the same exported program in one run.

    python benchmarks/convert_llama.py                       # 16 and 64 layers with torch, 32 and 128 without
    python benchmarks/convert_llama.py --memory              # peak memory at 1.1 billion parameters (needs 12 GiB)
    python benchmarks/convert_llama.py --write README.md     # both, put between the markers of the file

CPU time, without export, each number of layers in a process of its own: the memory that a conversion before it left in
pieces is no part of it. A program is converted once, after an export that went through gigabytes; so the processor's
caches are emptied before each run, else small programs, which fit into them, would seem cheaper by the layer than they
are. Ours is the least of several runs in two processes at different times, since whatever else the machine does only
adds to it; torch's is a single one.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from sections import markdown_table, write_section
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from exportguard import torch_export_patches
from exportguard.conversion import convert
from exportguard.opsets import default_opset
from exportguard.reading import Exported, read
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
# 1.1 billion parameters, 4.2 GiB in float32.
LARGE = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "num_hidden_layers": 22,
}
CACHE_BYTES = 512 << 20  # more than the last cache of any processor here


@dataclass(frozen=True)
class Row:
    """The times for one number of layers, in seconds; torch's is None where it was left out."""

    layers: int
    fx_nodes: int
    ours: float
    torch: float | None


def exported_llama(**config: Any) -> Exported:
    """An untrained Llama with a cache, its batch, new tokens and past dynamic."""
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    head = model.config.hidden_size // model.config.num_attention_heads
    cache = DynamicCache(config=model.config)
    for layer in range(model.config.num_hidden_layers):
        states = torch.zeros(2, model.config.num_key_value_heads, 5, head)
        cache.update(states, states.clone(), layer)
    inputs = {
        "input_ids": torch.zeros(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        "past_key_values": cache,
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: "past+seq"},
        "past_key_values": {0: "batch", 2: "past"},
    }
    return exported_module(ExportRequest.of(model, (), inputs, dynamic_shapes=shapes, options=ExportOptions()))


def convert_here(exported: Exported, path: Path) -> None:
    """Conversion and saving with exportguard."""
    convert(read(exported), opset=default_opset(), options=ExportOptions()).save(path)


def convert_with_torch(exported: Exported, path: Path) -> None:
    """Conversion and saving with torch's own exporter, with its defaults; it traces again, so it needs the guard."""
    with torch_export_patches():
        result = torch.onnx.export(exported.expanded(), dynamo=True, verbose=False)
    if result is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    result.save(str(path), external_data=True)


def empty_caches() -> None:
    """Puts other memory into the processor's caches."""
    torch.zeros(CACHE_BYTES, dtype=torch.uint8).add_(1)


def cpu_seconds(run: Callable[[], None]) -> float:
    """The CPU time of one call that finds nothing in the processor's caches."""
    gc.collect()
    empty_caches()
    start = time.process_time()
    run()
    return time.process_time() - start


def measured(layers: int, repeats: int, with_torch: bool) -> Row:
    """Both converters on the same program, ours first; what is imported or built once is no part of the times."""
    exported = exported_llama(**SMALL, num_hidden_layers=layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        convert_here(exported, path)
        ours = min(cpu_seconds(lambda: convert_here(exported, path)) for _ in range(repeats))
        if with_torch:
            convert_with_torch(exported_llama(**SMALL, num_hidden_layers=1), path)
        theirs = cpu_seconds(lambda: convert_with_torch(exported, path)) if with_torch else None
    return Row(layers, len(exported.expanded().graph.nodes), ours, theirs)


def time_table(rows: Sequence[Row]) -> str:
    """One line for each number of layers."""
    header = ("layers", "fx nodes", "exportguard (s)", "per layer (ms)", "torch.onnx (s)", "times less")
    lines = []
    for row in rows:
        theirs = ("", "") if row.torch is None else (f"{row.torch:.1f}", f"{row.torch / row.ours:.0f}")
        per_layer = f"{1000 * row.ours / row.layers:.2f}"
        lines.append((str(row.layers), str(row.fx_nodes), f"{row.ours:.3f}", per_layer, *theirs))
    return markdown_table(header, lines)


def status_kib(field: str) -> int:
    """A line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def peak_over(run: Callable[[], None]) -> float:
    """By how much the resident memory of this process rises above its present size during a call, in MiB."""
    gc.collect()
    before = status_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the highest size seen
    run()
    return (status_kib("VmHWM") - before) / 1024


def memory_line(folder: Path) -> str:
    """Peak memory over the loaded and exported model, and the size of the file."""
    exported = exported_llama(**LARGE)
    weights = sum(value.numel() * value.element_size() for value in exported.program.state_dict.values())
    peak = peak_over(lambda: convert_here(exported, folder / "large.onnx"))
    written = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"Conversion and saving of {weights / 2**30:.2f} GiB of float32 weights ({written / 2**30:.2f} GiB written) "
        f"takes {peak:.0f} MiB at its peak over the loaded and exported model.\n"
    )


def arguments() -> argparse.Namespace:
    """What the user asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--torch-layers", type=int, nargs="*", default=[16, 64], help="where torch converts too")
    parser.add_argument("--repeats", type=int, default=7, help="runs in each process")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each number of layers")
    parser.add_argument("--row", type=int, default=None, help="one number of layers, as JSON")
    parser.add_argument("--memory", action="store_true", help="only the peak memory at 1.1 billion parameters")
    parser.add_argument("--folder", type=Path, default=None, help="where the 4.2 GiB are written")
    parser.add_argument("--write", type=Path, default=None, help="a file with the markers")
    return parser.parse_args()


def times(options: argparse.Namespace) -> str:
    """The table of times."""
    rows: dict[int, Row] = {}
    with Console(stderr=True).status("measuring") as status:
        for turn, layers in itertools.product(range(options.rounds), options.layers):
            status.update(f"{layers} layers …")
            with_torch = [str(layers)] if turn == 0 and layers in options.torch_layers else []
            arguments = ["--row", str(layers), "--repeats", str(options.repeats), "--torch-layers", *with_torch]
            row = Row(**json.loads(in_a_process(arguments).splitlines()[-1]))
            before = rows.setdefault(layers, row)
            rows[layers] = replace(before, ours=min(before.ours, row.ours))
    return time_table(list(rows.values()))


def memory(options: argparse.Namespace) -> str:
    """The line on memory."""
    return in_a_process(["--memory", *(["--folder", str(options.folder)] if options.folder else [])])


def in_a_process(arguments: Sequence[str]) -> str:
    """What this program prints with other arguments."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Prints or writes what was asked for."""
    options = arguments()
    if options.memory:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(memory_line(Path(folder)), end="")
        return
    if options.row:
        print(json.dumps(asdict(measured(options.row, options.repeats, options.row in options.torch_layers))))
        return
    text = times(options)
    if options.write:
        write_section(options.write, "speed", f"{text}\n{memory(options)}")
    else:
        print(text)


if __name__ == "__main__":
    main()
