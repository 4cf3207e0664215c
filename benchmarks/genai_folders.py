"""Folders of `exportguard export --for genai` beside those of onnxruntime-genai's builder: time, memory, tokens.

    python benchmarks/genai_folders.py                      # needs onnxruntime-genai
    python benchmarks/genai_folders.py llama gemma3 --hidden 1024 --layers 8

An untrained model is saved once and made into a folder by each command in a process of its own, one after the other
for several rounds: the least CPU seconds, and the highest MiB that it held ("anonymous" memory; what is mapped from
files can be taken back). Ours is made twice, with and without the comparisons, which the builder has none of. Then
onnxruntime-genai generates from both in turn: tokens a second of CPU time on one thread, the best of several rounds,
and the median over the rounds of how many times faster ours is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime_genai
import torch
import transformers
from export_memory import resident
from genai_builder import MODELS, configuration_of, save_with_words
from sections import markdown_table

FORMS = ("float32", "int4")


def ours(model: Path, out: Path, form: str, *further: str) -> list[str]:
    """The command that makes a folder."""
    quantize = ["--quantize", form] if form != "float32" else []
    where = ["-m", str(model), "-o", str(out), "--for", "genai", "-q"]
    return [sys.executable, "-m", "exportguard", "export", *where, *quantize, *further]


def builder(model: Path, out: Path, form: str) -> list[str]:
    """The same of onnxruntime-genai."""
    program = Path(onnxruntime_genai.__file__).parent / "models" / "builder.py"
    where = ["-i", str(model), "-o", str(out), "-c", str(out.parent / "cache")]
    return [sys.executable, str(program), *where, "-p", "fp32" if form == "float32" else form, "-e", "cpu"]


def made(command: Sequence[str]) -> tuple[float, float, str]:
    """CPU seconds, anonymous MiB at the peak, and the last line of an error."""
    # Bytecode is kept, as that of an installed package is: the builder's is.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident(process.pid).get("anonymous", 0.0))
        time.sleep(0.02)
    after = os.times()
    told = (process.stderr.read() if process.stderr else "").strip().splitlines()
    error = told[-1] if process.returncode and told else ""
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, peak, error


@dataclass(frozen=True)
class Speed:
    """Tokens a second of CPU time in the best round, the median seconds of a token by round, and the tokens."""

    tokens: float
    seconds: Sequence[float]
    generated: list[int]


def speeds(folders: Sequence[Path], prompt: int, new: int, rounds: int) -> list[Speed]:
    """Of each folder, without the prompt; who begins changes with every round."""
    models = [onnxruntime_genai.Model(str(folder)) for folder in folders]
    of_rounds: list[list[list[float]]] = [[] for _ in models]
    generated: list[list[int]] = [[] for _ in models]
    for turn in range(rounds):
        for number in sorted(range(len(models)), reverse=turn % 2 == 1):
            settings = onnxruntime_genai.GeneratorParams(models[number])
            settings.set_search_options(max_length=prompt + new, min_length=prompt + new, do_sample=False)
            generator = onnxruntime_genai.Generator(models[number], settings)
            generator.append_tokens(torch.arange(3, 3 + prompt).remainder(200).add(3).to(torch.int32).numpy())
            generator.generate_next_token()
            taken = []
            for _ in range(new - 1):
                begin = time.process_time()
                generator.generate_next_token()
                taken.append(time.process_time() - begin)
            of_rounds[number].append(taken)
            generated[number] = [int(token) for token in generator.get_sequence(0)]
    return [
        Speed(max(len(taken) / sum(taken) for taken in own), [statistics.median(taken) for taken in own], tokens)
        for own, tokens in zip(of_rounds, generated, strict=True)
    ]


def one_thread(folder: Path) -> None:
    """Both are run alike."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = 1
    path.write_text(json.dumps(config), encoding="utf-8")


def row(name: str, form: str, model: Path, options: argparse.Namespace) -> list[str]:
    """Ours and theirs."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        own, other = Path(place) / "ours", Path(place) / "builder"
        commands = [ours(model, own, form), ours(model, own, form, "--no-verify"), builder(model, other, form)]
        rounds = [[made(command) for command in commands] for _ in range(options.folders)]
        errors = [error for results in rounds for _, _, error in results if error]
        if errors:
            return [name, form, errors[0]]
        results = [(min(run[0] for run in runs), max(run[1] for run in runs)) for runs in zip(*rounds, strict=True)]
        for folder in (own, other):
            one_thread(folder)
        speed, their_speed = speeds((own, other), options.prompt, options.new, options.rounds)
    proved, plain, theirs = results
    equal = sum(a == b for a, b in zip(speed.generated, their_speed.generated, strict=True)) - options.prompt
    ratio = statistics.median(b / a for a, b in zip(speed.seconds, their_speed.seconds, strict=True))
    times = [f"{seconds:.1f}" for seconds, _ in (proved, plain, theirs)]
    memory = [f"{peak:.0f}" for _, peak in (proved, plain, theirs)]
    told = [f"{speed.tokens:.1f}", f"{their_speed.tokens:.1f}", f"{ratio:.3f}"]
    return [name, form, *times, *memory, *told, f"{equal} of {options.new}"]


def save(name: str, folder: Path, options: argparse.Namespace) -> None:
    """An untrained model with a tokenizer, as every user has it."""
    torch.manual_seed(0)
    config: Any = configuration_of(name, options.hidden, options.layers)
    save_with_words(transformers.AutoModelForCausalLM.from_config(config), folder)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--folders", type=int, default=3, help="how often each command makes its folder")
    options = parser.parse_args()
    kinds = ("proved", "not compared", "builder")
    header = ["model", "form", *(f"CPU s, {kind}" for kind in kinds), *(f"MiB, {kind}" for kind in kinds)]
    header += ["tokens/s, ours", "builder", "ours / builder", "equal tokens"]
    print("".join(markdown_table(header, [])), end="", flush=True)
    for name in options.models:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            save(name, Path(folder) / "model", options)
            for form in FORMS:
                print(f"| {' | '.join(row(name, form, Path(folder) / 'model', options))} |", flush=True)


if __name__ == "__main__":
    main()
