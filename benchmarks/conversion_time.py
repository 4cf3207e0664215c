"""CPU time of the conversion alone: from what torch.export made of a model to the ONNX file, without the optimizer.

Each model is exported under the guard and converted several times, in fresh processes; of all of them the least and the
median are told. `--beside` measures the package of another checkout in turn with this one, from a program of its own:
the nodes of the program and of the model tell whether both convert the same.

    python benchmarks/conversion_time.py llama:16 llama:64 --beside ../before/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import exportguard

MODELS = ("llama:16", "llama:64", "bert:12", "vit:12", "mamba:8")

PROGRAM = """
import gc, inspect, json, os, sys, tempfile, time
import torch, transformers
from exportguard import to_onnx, torch_export_patches

def built(name, layers):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers}
    text = torch.zeros(2, 3, dtype=torch.int64)
    batch, tokens = torch.export.Dim.AUTO, {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    if name == "llama":
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
        cache = transformers.DynamicCache(config=model.config)
        for layer in range(layers):
            cache.update(torch.zeros(2, 2, 5, 16), torch.zeros(2, 2, 5, 16), layer)
        past = [{0: batch, 2: batch}] * 2 * layers
        mask = torch.ones(2, 8, dtype=torch.int64)
        is_new = "cache" in inspect.signature(model.forward).parameters  # from transformers 5.24 on
        name_of_cache = "cache" if is_new else "past_key_values"
        inputs = {"input_ids": text, "attention_mask": mask, name_of_cache: cache}
        return model, inputs, {"input_ids": tokens, "attention_mask": tokens, name_of_cache: past}
    if name == "bert":
        model = transformers.BertModel(transformers.BertConfig(**sizes, num_attention_heads=4, vocab_size=256))
        inputs = {"input_ids": text, "attention_mask": torch.ones_like(text)}
        return model, inputs, {"input_ids": tokens, "attention_mask": tokens}
    if name == "vit":
        config = transformers.ViTConfig(**sizes, num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.ViTModel(config), {"pixel_values": torch.rand(2, 3, 32, 32)}, {"pixel_values": {0: batch}}
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=layers, vocab_size=256, state_size=4)
    return transformers.MambaForCausalLM(config), {"input_ids": text, "use_cache": False}, None

name, layers = sys.argv[1].split(":")
model, inputs, shapes = built(name, int(layers))
options = {"optimize": False} if "optimize" in inspect.signature(to_onnx).parameters else {}
with torch_export_patches() as prepare, torch.no_grad():
    program = torch.export.export(model.eval(), (), prepare(inputs), dynamic_shapes=shapes, strict=False)

with tempfile.TemporaryDirectory() as folder:
    def once():
        gc.collect()
        start = time.process_time()
        made = to_onnx(program, **options)
        made.save(os.path.join(folder, "model.onnx"))
        return 1000 * (time.process_time() - start)

    once()
    times = [once() for _ in range(int(sys.argv[2]))]
    import onnx
    nodes = len(onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph.node)
print(json.dumps([times, len(program.graph.nodes), nodes]))
"""


def run(model: str, repeats: int, package: Path) -> tuple[list[float], int, int]:
    """The milliseconds of each conversion in one process, and the nodes of the program and of the model."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", PROGRAM, model, str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    times, before, after = json.loads(done.stdout.splitlines()[-1])
    return times, before, after


def main() -> None:
    """Prints a line for each model, the packages beside each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, help="name:layers, of llama, bert, vit and mamba")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7, help="conversions in each process")
    parser.add_argument("--beside", type=Path, help="the folder that holds the package of another checkout")
    options = parser.parse_args()
    packages = [Path(exportguard.__file__).parents[1], *filter(None, [options.beside])]

    for model in options.models:
        runs = [[run(model, options.repeats, package) for package in packages] for _ in range(options.processes)]
        told = []
        for of_package in zip(*runs, strict=True):
            times = [time for each in of_package for time in each[0]]
            _, before, after = of_package[0]
            median = statistics.median(times)
            told.append(f"least {min(times):7.1f} ms   median {median:7.1f} ms   {before} nodes to {after}")
        print(f"{model:10} {'   beside '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
