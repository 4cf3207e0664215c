"""From a module to a saved ONNX file: CPU seconds of tracing once or everything, of plain torch.export, of torch's own.

Both sides of a row run in one process, one after the other, on models of small widths: their time is that of exports.

    python benchmarks/export_speed.py llama:16 llama:64 bert:12 vit:12 whisper:6 t5:6 --torch-onnx
    python benchmarks/export_speed.py llama:16 llama:64 llama:1000 --once    # without the other sides
    python benchmarks/export_speed.py llama:16 bert:12 --rounds 5            # the least of five, on a busy machine
    python benchmarks/export_speed.py llama:64 bert:12 vit:12 --phases       # where the time of tracing once goes
    python benchmarks/export_speed.py llama:32 unnamed:32 --once --rounds 3    # with names and Dim.DYNAMIC everywhere
    python benchmarks/export_speed.py llama:16 llama:48 --once --instructions    # on a machine that is not quiet

Behind the rows stand the goals that they reach or miss.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from instructions import instruction_clock

import exportguard
from exportguard import ExportOptions
from exportguard.cache_names import cache_argument
from exportguard.conversion import convert
from exportguard.opsets import checked_opset
from exportguard.phases import measured_by, phase, recorded_phases
from exportguard.reading import Exported, read
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module

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
    name_of_cache = cache_argument(model.forward) or ""
    inputs = {
        "input_ids": torch.randint(0, 1000, (2, 3)),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        name_of_cache: cache,
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: "total"},
        name_of_cache: {0: "batch", 2: "past"},
    }
    return Case(model, inputs, shapes)


def unnamed(layers: int) -> Case:
    """The same Llama, its axes without names."""
    case = decoder("llama", layers)
    return Case(case.model, case.inputs, exportguard.use_dyn_not_str(case.shapes, torch.export.Dim.DYNAMIC))


def first(layers: int) -> Case:
    """A Llama without a past, which makes its cache itself."""
    case = decoder("llama", layers)
    of_cache = cache_argument(case.model.forward)
    inputs, shapes = ({name: given[name] for name in given if name != of_cache} for given in (case.inputs, case.shapes))
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    return Case(case.model, inputs, {**shapes, "attention_mask": shapes["input_ids"]})


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


def whisper(layers: int) -> Case:
    """An encoder of sounds with a decoder of texts."""
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=layers,
        decoder_layers=layers,
        d_model=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=64,
        vocab_size=1000,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    inputs = {"input_features": torch.randn(2, 16, 64), "decoder_input_ids": torch.randint(3, 1000, (2, 5))}
    shapes = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "seq"}}
    return Case(transformers.WhisperForConditionalGeneration(config).eval(), inputs, shapes)


def t5(layers: int) -> Case:
    """An encoder and a decoder of texts, whose first layers have the positions of all."""
    import transformers

    config = transformers.T5Config(
        num_layers=layers,
        num_decoder_layers=layers,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_heads=4,
        vocab_size=1000,
        use_cache=False,
    )
    inputs = {"input_ids": torch.randint(3, 1000, (2, 7)), "decoder_input_ids": torch.randint(3, 1000, (2, 5))}
    shapes = {"input_ids": {0: "batch", 1: "source"}, "decoder_input_ids": {0: "batch", 1: "target"}}
    return Case(transformers.T5ForConditionalGeneration(config).eval(), inputs, shapes)


def made(name: str) -> Case:
    """`llama:16` and the like."""
    kind, _, layers = name.partition(":")
    others: dict[str, Callable[[int], Case]] = {
        "first": first,
        "unnamed": unnamed,
        "bert": bert,
        "vit": vit,
        "resnet": resnet,
        "whisper": whisper,
        "t5": t5,
    }
    torch.manual_seed(0)
    return others[kind](int(layers or 6)) if kind in others else decoder(kind, int(layers or 16))


def exported(case: Case, repeats: str) -> Exported:
    """The program, its blocks traced as `repeats` says."""
    options = ExportOptions(repeats=repeats)  # type: ignore[arg-type]
    return exported_module(ExportRequest.of(case.model, (), case.inputs, dynamic_shapes=case.shapes, options=options))


def save_here(case: Case, repeats: str, folder: str) -> None:
    """Module to file."""
    model = convert(read(exported(case, repeats)), opset=checked_opset(None), options=ExportOptions())
    model.save(f"{folder}/here.onnx")


def phases(name: str, clock: Callable[[], float]) -> dict[str, Any]:
    """The part of the time of one model that each phase takes, in percent of the CPU time or the instructions."""
    case = made(name)
    with TemporaryDirectory() as folder, measured_by(clock), recorded_phases() as whole, phase("all"):
        traced = exported(case, "trace once")
        with phase("reading, converting, optimizing"):
            model = convert(read(traced), opset=checked_opset(None), options=ExportOptions())
        with phase("saving"):
            model.save(f"{folder}/here.onnx")
    seconds = {**traced.seconds, **whole}
    seconds["torch.export"] -= seconds["torch.export: tracing"]
    return {"model": name, **{key: round(100 * value / seconds["all"], 1) for key, value in seconds.items()}}


def torch_shapes(case: Case) -> dict[str, Any]:
    """The dynamic shapes as torch takes them; they have no names, which costs torch nothing."""
    shapes = exportguard.use_dyn_not_str(case.shapes)
    name = cache_argument(case.model.forward)
    if name in case.inputs:
        shapes[name] = [shapes[name]] * (2 * len(case.inputs[name].layers))
    return dict(shapes)


def save_plainly(case: Case, folder: str) -> None:
    """torch.export as it is, but for the serializers of caches, and the conversion of its program."""
    with exportguard.torch_export_patches(patch=False) as prepare, torch.no_grad():
        inputs = prepare(case.inputs)
        program = torch.export.export(case.model, (), inputs, dynamic_shapes=torch_shapes(case), strict=False)
        exportguard.to_onnx(program).save(f"{folder}/plain.onnx")


def save_with_torch(case: Case, folder: str) -> None:
    """The same with torch's exporter, its optimizer on, as its users call it."""
    shapes = torch_shapes(case)
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


def taken(clock: Callable[[], float], work: Callable[[], Any]) -> float:
    """What a clock counts in one run, after the collector has run."""
    gc.collect()
    start = clock()
    work()
    return clock() - start


def measured(name: str, clock: Callable[[], float], *, with_all: bool, with_torch: bool, rounds: int) -> dict[str, Any]:
    """The least times of one model, its sides one after the other in each round, and how many times faster tracing
    once is."""
    sides: dict[str, Callable[[Case, str], None]] = {"once": lambda case, to: save_here(case, "trace once", to)}
    if with_all:
        sides |= {"all": lambda case, to: save_here(case, "trace all", to), "plain": save_plainly}
    if with_torch:
        sides["torch.onnx"] = save_with_torch
    times: dict[str, list[float]] = {side: [] for side in sides}
    with TemporaryDirectory() as folder:
        for _ in range(rounds):
            case = made(name)  # nothing that a side keeps of a model is there in the next round
            for side, save in sides.items():
                times[side].append(taken(clock, functools.partial(save, case, folder)))
    least = {side: min(taken_by) for side, taken_by in times.items()}
    row: dict[str, Any] = {"model": name, "once": least["once"]}
    for side in [*sides][1:]:
        row |= {side: least[side], f"{side} / once": least[side] / least["once"]}
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


#: How many times faster than the other side, by model.
GOALS: dict[str, dict[str, float]] = {
    "torch.onnx / once": {
        **{"llama:16": 45, "llama:64": 150, "llama:128": 250},
        **dict.fromkeys(("bert:12", "vit:12", "whisper:6", "t5:6"), 12),
    },
    "plain / once": {"llama:64": 16, "bert:12": 3, "vit:12": 3},
}
NEVER_SLOWER = 0.95
LAYER_MS, THOUSAND_LAYERS_S = 12, 20


def goals(rows: Sequence[Mapping[str, Any]], *, are_seconds: bool) -> Iterator[str]:
    """A line for each goal that the rows tell about; what a layer takes is told of instructions too."""
    for row in rows:
        for ratio, by_model in {**GOALS, "all / once": {row["model"]: NEVER_SLOWER}}.items():
            goal = by_model.get(row["model"])
            if ratio in row and goal is not None:
                yield _line(f"{row['model']}: {ratio}", row[ratio], goal, is_met=row[ratio] >= goal)
        if row["model"].endswith(":1000") and are_seconds:
            yield _line(
                f"{row['model']}: seconds", row["once"], THOUSAND_LAYERS_S, is_met=row["once"] < THOUSAND_LAYERS_S
            )
    for kind, ms in _further_layers(rows):
        if are_seconds:
            yield _line(f"{kind}: ms for each further layer", ms, LAYER_MS, is_met=ms <= LAYER_MS)
        else:
            yield f"{kind}: {ms:.4g} million instructions for each further layer"


def _line(what: str, value: float, goal: float, *, is_met: bool) -> str:
    return f"{what}: {value:.4g} (goal {goal:g}): {'met' if is_met else 'MISSED'}"


def _further_layers(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Milliseconds between the least and the most layers of each kind that was measured with several."""
    kinds: dict[str, dict[int, float]] = {}
    for row in rows:
        kind, _, layers = row["model"].partition(":")
        kinds.setdefault(kind, {})[int(layers or 0)] = row["once"]
    for kind, seconds in kinds.items():
        low, high = min(seconds), max(seconds)
        if low != high:
            yield kind, 1000 * (seconds[high] - seconds[low]) / (high - low)


def main() -> None:
    """Prints a line of JSON for each model, then the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models",
        nargs="*",
        help="llama:16, qwen3:16, mixtral:6, smollm3:16, bert:12, vit:12, resnet:6, whisper:6, t5:6",
    )
    parser.add_argument("--torch-onnx", action="store_true", help="measure torch.onnx.export too")
    parser.add_argument("--rounds", type=int, default=1, help="take the least of several rounds, of every side")
    parser.add_argument("--once", action="store_true", help="measure nothing but tracing once")
    parser.add_argument("--phases", action="store_true", help="measure nothing but the phases of tracing once")
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions, in 10^9, in place of CPU seconds"
    )
    arguments = parser.parse_args()
    clock = instruction_clock() if arguments.instructions else time.process_time
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with TemporaryDirectory() as folder:
        save_here(made("llama:2"), "trace once", folder)  # what is imported late is imported now
        if arguments.torch_onnx:
            save_with_torch(made("llama:2"), folder)
    if arguments.phases:
        for name in arguments.models:
            print(json.dumps(phases(name, clock)), flush=True)
        return
    rows = []
    for name in arguments.models:
        options = {"with_all": not arguments.once, "with_torch": arguments.torch_onnx, "rounds": arguments.rounds}
        rows.append(measured(name, clock, **options))
        print(json.dumps(rows[-1]), flush=True)
    print("\n".join(goals(rows, are_seconds=not arguments.instructions)))


if __name__ == "__main__":
    main()
