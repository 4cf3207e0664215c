"""From a module to a saved ONNX file: CPU seconds of tracing once, of tracing everything, of torch.onnx.export.

Both sides of a row run in one process, one after the other, on models of small widths: their time is that of exports.

    python benchmarks/export_speed.py llama:16 llama:64 bert:12 vit:12 --torch-onnx
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch

import exportguard
from exportguard import ExportOptions
from exportguard.export import convert, export_program
from exportguard.opsets import checked_opset
from exportguard.tracing import Exported

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


@dataclass(frozen=True)
class Case:
    """A model with its inputs and the names of their axes."""

    model: torch.nn.Module
    inputs: dict[str, Any]
    shapes: dict[str, Any]


def decoder(name: str, layers: int) -> Case:
    """A causal language model with its cache."""
    import transformers

    kinds = {"llama": "Llama", "qwen3": "Qwen3", "mixtral": "Mixtral", "smollm3": "SmolLM3"}
    more: dict[str, Any] = {"qwen3": {"head_dim": 16}, "mixtral": {"num_local_experts": 4}}.get(name, {})
    if name == "smollm3":
        more = {"pad_token_id": 0}
    config = getattr(transformers, f"{kinds[name]}Config")(num_hidden_layers=layers, **SMALL, **more)
    model = getattr(transformers, f"{kinds[name]}ForCausalLM")(config).eval()
    cache = exportguard.make_dynamic_cache(
        [(torch.randn(2, 2, 5, 16), torch.randn(2, 2, 5, 16)) for _ in range(layers)]
    )
    inputs = {
        "input_ids": torch.randint(0, 1000, (2, 3)),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        "past_key_values": cache,
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": {0: "batch", 2: "past"},
    }
    return Case(model, inputs, shapes)


def bert(layers: int) -> Case:
    """An encoder of texts."""
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=1000
    )
    inputs = {
        "input_ids": torch.randint(0, 1000, (2, 7)),
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "token_type_ids": torch.zeros(2, 7, dtype=torch.int64),
    }
    return Case(transformers.BertModel(config).eval(), inputs, {name: {0: "batch", 1: "seq"} for name in inputs})


def vit(layers: int) -> Case:
    """An encoder of pictures."""
    import transformers

    config = transformers.ViTConfig(
        num_hidden_layers=layers,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32)}
    return Case(transformers.ViTForImageClassification(config).eval(), inputs, {"pixel_values": {0: "batch"}})


def resnet(layers: int) -> Case:
    """Blocks of which few are equal."""
    import transformers

    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32, 64, 128], depths=[3, 4, layers, 3])
    inputs = {"pixel_values": torch.randn(2, 3, 64, 64)}
    return Case(transformers.ResNetModel(config).eval(), inputs, {"pixel_values": {0: "batch"}})


def made(name: str) -> Case:
    """`llama:16` and the like."""
    kind, _, layers = name.partition(":")
    others: dict[str, Callable[[int], Case]] = {"bert": bert, "vit": vit, "resnet": resnet}
    torch.manual_seed(0)
    return others[kind](int(layers or 6)) if kind in others else decoder(kind, int(layers or 16))


def exported(case: Case, repeats: str) -> Exported:
    """The program, its blocks traced as `repeats` says."""
    options = ExportOptions(repeats=repeats)  # type: ignore[arg-type]
    return export_program(case.model, (), case.inputs, dynamic_shapes=case.shapes, options=options)


def save_here(case: Case, repeats: str, folder: str) -> None:
    """Module to file."""
    model = convert(exported(case, repeats), opset=checked_opset(None), options=ExportOptions())
    model.save(f"{folder}/here.onnx")


def save_with_torch(case: Case, folder: str) -> None:
    """The same with torch's exporter, its optimizer on, as its users call it."""
    shapes = exportguard.use_dyn_not_str(case.shapes)
    cache = case.inputs.get("past_key_values")
    if cache is not None:
        shapes["past_key_values"] = [shapes["past_key_values"]] * (2 * len(cache.layers))
    with exportguard.torch_export_patches(repeats="trace all") as prepare, torch.no_grad():
        torch.onnx.export(
            case.model,
            (),
            kwargs=prepare(case.inputs),
            dynamic_shapes=shapes,
            dynamo=True,
            optimize=True,
            verbose=False,
            f=f"{folder}/torch.onnx",
        )


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Of one run, after the collector has run."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def measured(name: str, with_torch: bool) -> dict[str, Any]:
    """The times of one model, and how many times faster tracing once is."""
    case = made(name)
    with TemporaryDirectory() as folder:
        once = cpu_seconds(lambda: save_here(case, "trace once", folder))
        plain = cpu_seconds(lambda: save_here(case, "trace all", folder))
        row: dict[str, Any] = {"model": name, "once": once, "all": plain, "all / once": plain / once}
        if with_torch:
            row["torch.onnx"] = cpu_seconds(lambda: save_with_torch(case, folder))
            row["torch.onnx / once"] = row["torch.onnx"] / once
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    """Prints a line of JSON for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", help="llama:16, qwen3:16, mixtral:6, smollm3:16, bert:12, vit:12, resnet:6"
    )
    parser.add_argument("--torch-onnx", action="store_true", help="measure torch.onnx.export too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with TemporaryDirectory() as folder:
        save_here(made("llama:2"), "trace once", folder)  # what is imported late is imported now
        if arguments.torch_onnx:
            save_with_torch(made("llama:2"), folder)
    for name in arguments.models:
        print(json.dumps(measured(name, arguments.torch_onnx)), flush=True)


if __name__ == "__main__":
    main()
