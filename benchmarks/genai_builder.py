"""Our decoders beside those that onnxruntime-genai's builder writes by hand, in onnxruntime, on one thread.

    python benchmarks/genai_builder.py                          # needs onnxruntime-genai
    python benchmarks/genai_builder.py llama gemma3 --no-torch
    python benchmarks/genai_builder.py --loading                # time and memory of loading 234 MB of weights
    python benchmarks/genai_builder.py llama --profile decode   # where the time goes, operator by operator

The same untrained model in four forms: standard operators, optimize="onnxruntime", genai's file, and torch.onnx with
its optimizer. All are compared with the first, then run in turn; CPU time, least and median.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_genai
import tokenizers
import torch
import transformers
from decoders import call_of
from sections import markdown_table
from turns import milliseconds

import exportguard

OURS = {"standard": True, "onnxruntime": "onnxruntime"}
LIKE = ("genai", "torch.onnx")
COMMON = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Setting:
    """What is run: a model's width and depth, and the sizes of one call."""

    name: str
    hidden: int
    layers: int
    batch: int
    new: int
    past: int


SETTINGS = (
    Setting("decode", 64, 16, 1, 1, 128),
    Setting("prefill", 64, 16, 1, 128, 0),
    Setting("batch", 1024, 4, 4, 1, 2000),
)
LOADED = Setting("loading", 1024, 4, 1, 1, 16)


class BuilderError(RuntimeError):
    """The builder does not write a model."""


def configuration(name: str, setting: Setting) -> transformers.PretrainedConfig:
    """A small model of that family."""
    return configuration_of(name, setting.hidden, setting.layers)


def configuration_of(name: str, hidden: int, layers: int) -> transformers.PretrainedConfig:
    """A model of that family of that width and depth."""
    sizes: dict[str, Any] = {
        **COMMON,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
    }
    heads = {**sizes, "head_dim": hidden // COMMON["num_attention_heads"]}
    if name == "llama":
        return transformers.LlamaConfig(**sizes)
    if name == "qwen3":
        return transformers.Qwen3Config(**heads)
    if name == "phi3":
        return transformers.Phi3Config(**sizes)
    if name == "gemma3":
        return transformers.Gemma3TextConfig(**heads, sliding_window=512, query_pre_attn_scalar=heads["head_dim"])
    if name == "mistral":
        return transformers.MistralConfig(**heads, sliding_window=None)
    if name == "granite":
        return transformers.GraniteConfig(**sizes)
    raise SystemExit(f"no model is named {name}; there are {', '.join(MODELS)}")


MODELS = ("llama", "qwen3", "phi3", "gemma3", "mistral", "granite")


def built(name: str, setting: Setting) -> transformers.PreTrainedModel:
    """The model with weights drawn from a fixed seed, its norms not all one."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(configuration(name, setting)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return model


# ------------------------------------------------------------------------------------------------ the forms


def write_ours(model: transformers.PreTrainedModel, folder: Path) -> dict[str, Path]:
    """Both targets."""
    inputs, shapes = call_of(model)
    paths = {}
    for name, optimize in OURS.items():
        converted = exportguard.to_onnx(model, kwargs=inputs, dynamic_shapes=shapes, optimize=optimize)
        paths[name] = converted.save(folder / f"{name}.onnx")
    return paths


def save_with_words(model: transformers.PreTrainedModel, folder: Path) -> None:
    """The model, and a tokenizer of a word for each number."""
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(256)}, unk_token="0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0").save_pretrained(folder)


def write_genai(model: transformers.PreTrainedModel, folder: Path) -> Path:
    """Runs the builder's command on a folder with the model and a tokenizer of a word for each number."""
    saved, out = folder / "saved", folder / "genai"
    save_with_words(model, saved)
    command = [sys.executable, __file__, "--build", str(saved), str(out), str(folder / "cache")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuilderError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return out / "model.onnx"


class OneRotation(transformers.AutoConfig):
    """Configurations as the builder reads them: it knows one rotation, and another theta for layers with a window."""

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> transformers.PretrainedConfig:
        """What transformers reads; the rotations of two kinds of layers stand where they did before version 5."""
        config = transformers.models.auto.AutoConfig.from_pretrained(*arguments, **options)
        rotations = getattr(config, "rope_parameters", None) or {}
        if "full_attention" in rotations:
            config.rope_local_base_freq = rotations["sliding_attention"]["rope_theta"]
            config.rope_parameters = rotations["full_attention"]
        return config


def build_here(saved: str, out: str, cache: str) -> None:
    """The builder in this process; models read their configurations as ever, and every cache grows."""
    sys.path.insert(0, str(Path(onnxruntime_genai.__file__).parent / "models"))
    builder = importlib.import_module("builder")
    builder.AutoConfig = OneRotation
    given = "", saved, out, "fp32", "cpu", cache
    builder.create_model(*given, **builder.parse_extra_options(*given, ["windowed_kv_cache=false"]))


def write_torch(model: transformers.PreTrainedModel, path: Path) -> Path:
    """torch's own exporter with its optimizer; it traces under our guard, without which it does not export caches."""
    inputs, shapes = call_of(model)
    with exportguard.torch_export_patches() as prepare:
        dims = exportguard.to_torch_dynamic_shapes(shapes) if hasattr(exportguard, "to_torch_dynamic_shapes") else None
        program = torch.export.export(model, (), prepare(inputs), strict=False, dynamic_shapes=dims)
        result = torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    if result is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    result.save(str(path), external_data=True)
    return path


def written(name: str, setting: Setting, folder: Path, with_torch: bool) -> dict[str, Path]:
    """The files of every form."""
    model = built(name, setting)
    paths = write_ours(model, folder)
    paths["genai"] = write_genai(model, folder)
    if with_torch:
        paths["torch.onnx"] = write_torch(model, folder / "torch.onnx")
    return paths


def node_count(path: Path) -> int:
    """Nodes of the main graph."""
    return len(onnx.load(path, load_external_data=False).graph.node)


# ------------------------------------------------------------------------------------------------ running


def session_of(path: Path, profile: Path | None = None) -> ort.InferenceSession:
    """One thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds(session: ort.InferenceSession, setting: Setting) -> dict[str, np.ndarray]:
    """Random tokens and caches, the same for every form."""
    batch, new, past = setting.batch, setting.new, setting.past
    values: dict[str, np.ndarray] = {}
    for value in session.get_inputs():
        if value.name == "input_ids":
            values[value.name] = np.random.default_rng(0).integers(3, 256, (batch, new))
        elif value.name == "attention_mask":
            values[value.name] = np.ones((batch, past + new), np.int64)
        elif value.name == "position_ids":
            values[value.name] = np.tile(np.arange(past, past + new), (batch, 1))
        else:
            shape = (batch, COMMON["num_key_value_heads"], past, setting.hidden // COMMON["num_attention_heads"])
            seed = zlib.crc32(value.name.encode())  # the order of inputs differs
            values[value.name] = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values


Times = dict[str, list[float]]


def interleaved(sessions: Mapping[str, ort.InferenceSession], setting: Setting, rounds: int) -> tuple[Times, Times]:
    """Milliseconds of CPU time of each round, and by how much each form's logits differ from the first one's."""
    given = {name: feeds(session, setting) for name, session in sessions.items()}
    logits = {name: session.run(None, given[name])[0] for name, session in sessions.items()}
    expected = next(iter(logits.values()))
    differences = {name: [float(np.abs(got - expected).max())] for name, got in logits.items()}
    calls = {name: functools.partial(session.run, None, given[name]) for name, session in sessions.items()}
    return milliseconds(calls, rounds), differences


def rows(name: str, setting: Setting, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    """A row for each form of one model in one setting."""
    with tempfile.TemporaryDirectory() as folder:
        paths = written(name, setting, Path(folder), options.torch)
        sessions = {form: session_of(path) for form, path in paths.items()}
        times, differences = interleaved(sessions, setting, options.rounds)
        median = {form: statistics.median(taken) for form, taken in times.items()}
        least = {form: min(taken) for form, taken in times.items()}
        for form, path in paths.items():
            ratios = f"{median[form] / median['genai']:.2f}", f"{least[form] / least['genai']:.2f}"
            figures = f"{median[form]:.3f}", f"{least[form]:.3f}", *ratios, f"{differences[form][0]:.0e}"
            yield name, setting.name, form, str(node_count(path)), *figures


# ------------------------------------------------------------------------------------------------ loading


def status_kib(field: str) -> int:
    """A line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def loading_here(path: Path) -> dict[str, float]:
    """Seconds of CPU time, and MiB at the peak and afterwards over what the process had before."""
    before = status_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the highest size seen
    begin = time.process_time()
    session = session_of(path)
    seconds = time.process_time() - begin
    peak, after = status_kib("VmHWM") - before, status_kib("VmRSS") - before
    del session
    return {"seconds": seconds, "peak": peak / 1024, "after": after / 1024}


def loading_rows(name: str, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Each file loaded in processes of its own; the least of several."""
    with tempfile.TemporaryDirectory() as folder:
        paths = written(name, LOADED, Path(folder), options.torch)
        taken: dict[str, list[dict[str, float]]] = collections.defaultdict(list)
        for _ in range(options.loads):
            for form, path in paths.items():
                command = [sys.executable, __file__, "--load", str(path)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                taken[form].append(json.loads(done.stdout.splitlines()[-1]))
        for form, runs in taken.items():
            least = {key: min(run[key] for run in runs) for key in runs[0]}
            yield name, form, f"{least['seconds']:.3f}", f"{least['peak']:.0f}", f"{least['after']:.0f}"


# ------------------------------------------------------------------------------------------------ profile


def profile(name: str, setting: Setting, options: argparse.Namespace) -> None:
    """Prints what each operator takes in each form, microseconds of a run."""
    with tempfile.TemporaryDirectory() as folder:
        for form, path in written(name, setting, Path(folder), False).items():
            session = session_of(path, Path(folder) / form)
            given = feeds(session, setting)
            for _ in range(options.rounds):
                session.run(None, given)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
            spent: collections.Counter[str] = collections.Counter()
            count: collections.Counter[str] = collections.Counter()
            for event in events:
                if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                    spent[event["args"]["op_name"]] += event["dur"]
                    count[event["args"]["op_name"]] += 1
            print(f"{form}: {sum(spent.values()) / options.rounds:.0f} us")
            for op, total in spent.most_common(14):
                print(f"  {op:36} {count[op] // options.rounds:5} {total / options.rounds:9.1f}")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--settings", nargs="+", default=[one.name for one in SETTINGS])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--loading", action="store_true")
    parser.add_argument("--load", type=Path, default=None, help="loads one file and prints what it took, as JSON")
    parser.add_argument("--build", nargs=3, default=None, help="the builder alone: a model's folder, two to write")
    parser.add_argument("--profile", default=None, choices=[one.name for one in SETTINGS])
    options = parser.parse_args()
    if options.build:
        build_here(*options.build)
        return
    if options.load:
        print(json.dumps(loading_here(options.load)))
        return
    for name in options.models:
        configuration(name, SETTINGS[0])  # fails before the first is run
    if options.profile:
        for name in options.models:
            profile(name, next(one for one in SETTINGS if one.name == options.profile), options)
        return
    if options.loading:
        header = ("model", "form", "CPU s", "peak MiB", "after MiB")
        print(markdown_table(header, [row for name in options.models for row in loading_rows(name, options)]))
        return
    header = ("model", "setting", "form", "nodes", "median ms", "least ms", "of genai", "least", "differs")
    print("".join(markdown_table(header, [])), end="", flush=True)
    for name in options.models:
        for setting in SETTINGS:
            if setting.name in options.settings:
                try:
                    for row in rows(name, setting, options):
                        print(f"| {' | '.join(row)} |", flush=True)
                except BuilderError as error:  # it does not know every configuration of every transformers
                    print(f"| {name} | {setting.name} | genai | the builder fails: {error} |", flush=True)


if __name__ == "__main__":
    main()
