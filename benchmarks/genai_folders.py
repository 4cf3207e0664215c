"""Folders of `exportguard export --for genai` beside those of onnxruntime-genai's builder: time, memory, tokens.

    python benchmarks/genai_folders.py                      # needs onnxruntime-genai
    python benchmarks/genai_folders.py llama gemma3 --hidden 1024 --layers 8

An untrained model is saved once and made into a folder by each command in a process of its own, one after the other
for several rounds: the least CPU seconds, and the highest MiB that it held ("anonymous" memory; what is mapped from
files can be taken back). Ours is made twice, with and without the comparisons, which the builder has none of. Then
onnxruntime-genai generates from both in turn, on one thread: tokens a second of CPU time at the median step, and how
many times faster ours is; and how many times faster the builder's is than a copy of itself, which tells how much of
that is chance.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
class Pair:
    """Tokens a second of each (the median step), how many times faster the first is, and the tokens that are equal."""

    first: float
    second: float
    ratio: float
    equal: int


def pair(first: Path, second: Path, options: argparse.Namespace) -> Pair:
    """Two folders in turn, token by token, so that both meet what the machine does beside. Of two copies of one folder
    the one that is loaded first is up to 4 % slower: each is loaded first as often as the other."""
    ratios, steps, equal = [], [], options.new
    for turn in range(options.loads):
        folders = [first, second] if turn % 2 == 0 else [second, first]
        models = [onnxruntime_genai.Model(str(folder)) for folder in folders]
        taken, tokens = in_turn(models, options)
        own = [row if turn % 2 == 0 else row[::-1] for row in taken]
        ratios.append(statistics.median(b / a for a, b in own))
        steps += own
        equal = min(equal, sum(a == b for a, b in zip(*tokens, strict=True)) - options.prompt)
    seconds = [statistics.median(row[side] for row in steps) for side in range(2)]
    return Pair(1 / seconds[0], 1 / seconds[1], statistics.mean(ratios), equal)


def in_turn(models: Sequence[Any], options: argparse.Namespace) -> tuple[list[list[float]], list[list[int]]]:
    """CPU seconds of each model for each token but the first, by row; and the tokens of each."""
    rows = []
    prompt = torch.arange(3, 3 + options.prompt).remainder(200).add(3).to(torch.int32).numpy()
    for _ in range(options.rounds):
        generators = []
        for model in models:
            settings = onnxruntime_genai.GeneratorParams(model)
            length = options.prompt + options.new
            settings.set_search_options(max_length=length, min_length=length, do_sample=False)
            generator = onnxruntime_genai.Generator(model, settings)
            generator.append_tokens(prompt)
            generator.generate_next_token()
            generators.append(generator)
        for step in range(options.new - 1):
            row = [0.0] * len(models)
            for side in sorted(range(len(models)), reverse=step % 2 == 1):
                begin = time.process_time()
                generators[side].generate_next_token()
                row[side] = time.process_time() - begin
            rows.append(row)
    return rows, [[int(token) for token in generator.get_sequence(0)] for generator in generators]


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
        copy = Path(shutil.copytree(other, Path(place) / "copy"))
        speed, control = pair(own, other, options), pair(copy, other, options)
    proved, plain, theirs = results
    times = [f"{seconds:.1f}" for seconds, _ in (proved, plain, theirs)]
    memory = [f"{peak:.0f}" for _, peak in (proved, plain, theirs)]
    told = [f"{speed.first:.1f}", f"{speed.second:.1f}", f"{speed.ratio:.3f}", f"{control.ratio:.3f}"]
    return [name, form, *times, *memory, *told, f"{speed.equal} of {options.new}"]


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
    parser.add_argument("--loads", type=int, default=8, help="how often both are loaded")
    parser.add_argument("--rounds", type=int, default=8, help="how often both generate when they are loaded")
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=FORMS)
    parser.add_argument("--folders", type=int, default=3, help="how often each command makes its folder")
    options = parser.parse_args()
    kinds = ("proved", "not compared", "builder")
    header = ["model", "form", *(f"CPU s, {kind}" for kind in kinds), *(f"MiB, {kind}" for kind in kinds)]
    header += ["tokens/s, ours", "builder", "ours / builder", "builder / builder", "equal tokens"]
    print("".join(markdown_table(header, [])), end="", flush=True)
    for name in options.models:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            save(name, Path(folder) / "model", options)
            for form in options.forms:
                print(f"| {' | '.join(row(name, form, Path(folder) / 'model', options))} |", flush=True)


if __name__ == "__main__":
    main()
