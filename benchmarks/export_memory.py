"""What `exportguard export` of a large checkpoint takes: memory, time, and whether the folder is whole.

Makes an untrained Llama of that many GiB on disk, in shards, and exports it in a process of its own.

    python benchmarks/export_memory.py                       # 2 GiB of float32
    python benchmarks/export_memory.py --gib 8 --for genai --quantize int4
    python benchmarks/export_memory.py --dtype float16       # converted while it is read

"anonymous" is what the process holds, "mapped" what it sees of files, which the system takes back when it wants to.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

_SHARD = 400 << 20


def make_checkpoint(folder: Path, gib: float) -> None:
    """One shard in memory at a time."""
    width, inner = 2048, 5632
    layer = 4 * (2 * width * width + 2 * width * width // 4 + 3 * width * inner)
    layers = max(1, round(((gib * 2**30) - 4 * 2 * 32000 * width) / layer))
    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    draw = torch.Generator().manual_seed(0)
    shard: dict[str, torch.Tensor] = {}
    names: dict[str, str] = {}

    def write() -> None:
        file = f"model-{len(set(names.values())):05d}.safetensors"
        names.update(dict.fromkeys(shard, file))
        save_file(shard, folder / file, metadata={"format": "pt"})
        shard.clear()

    for name, value in model.state_dict().items():
        is_scale = value.dim() == 1
        shard[name] = torch.ones(value.shape) if is_scale else torch.randn(value.shape, generator=draw) / width**0.5
        if sum(4 * one.numel() for one in shard.values()) > _SHARD:
            write()
    write()
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def measured(command: Sequence[str]) -> tuple[int, float, dict[str, float]]:
    """The exit code, the seconds, and the highest MiB of each kind."""
    start = time.perf_counter()
    process = subprocess.Popen(command)
    peak = {"anonymous": 0.0, "mapped": 0.0, "both": 0.0}
    while process.poll() is None:
        now = resident(process.pid)
        for kind, size in {**now, "both": sum(now.values())}.items():
            peak[kind] = max(peak[kind], size)
        time.sleep(0.02)
    return process.returncode, time.perf_counter() - start, peak


def resident(process: int) -> dict[str, float]:
    """MiB of each kind that a process has now; {} where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    table = dict(line.split(":", 1) for line in lines)
    fields = {"anonymous": "RssAnon", "mapped": "RssFile"}
    return {kind: int(table[field].split()[0]) / 1024 for kind, field in fields.items() if field in table}


def main() -> None:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--model", type=Path, default=None, help="a checkpoint instead of one that is made")
    options, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        model = options.model or Path(name) / "model"
        if options.model is None:
            make_checkpoint(model, options.gib)
        command = [sys.executable, "-m", "exportguard", "export", "-m", str(model), "-o", f"{name}/out", *further]
        code, seconds, peak = measured(command)
        largest = max(path.stat().st_size for path in model.glob("*.safetensors")) / 2**20
        size = sum(path.stat().st_size for path in model.glob("*.safetensors")) / 2**20
    told = ", ".join(f"{kind} {value:.0f} MiB" for kind, value in peak.items())
    print(f"exit {code}; weights {size:.0f} MiB, largest shard {largest:.0f} MiB; {seconds:.0f} s; at the peak {told}")


if __name__ == "__main__":
    main()
