"""The evaluator beside onnxruntime: each model is converted once, and both run it on every set of its inputs.

Small untrained models of every architecture that transformers has for the tasks, each in a process of its own. What one
of the two refuses and the other runs is a difference as well.

    python benchmarks/runners_agree.py                        # all architectures of all text tasks: hours
    python benchmarks/runners_agree.py --tasks fill-mask --most 20
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from exportguard import compare_outputs
from exportguard.models import BuildOptions, build_model, models_of_task
from exportguard.runners.evaluator import EvaluatorSession
from exportguard.runners.onnxruntime import OrtSession
from exportguard.validation.validate import ValidateOptions, validate_case

TEXT_TASKS = (
    "text-generation",
    "text2text-generation",
    "fill-mask",
    "text-classification",
    "token-classification",
    "question-answering",
    "next-sentence-prediction",
    "multiple-choice",
)


def outcome(model: str, task: str) -> tuple[str, str]:
    """One word, and what there is to say."""
    torch.manual_seed(0)
    calls: list[dict[str, torch.Tensor]] = []
    with TemporaryDirectory(prefix="exportguard-") as folder:
        file = Path(folder) / "model.onnx"
        build = BuildOptions(task=task)
        try:
            case = build_model(model, build)
        except Exception as error:
            return "not built", f"{type(error).__name__}: {error}"
        start = time.process_time()
        report = validate_case(case, file, ValidateOptions(build=build, runner="evaluator"), calls=calls)
        whole = time.process_time() - start
        if not calls:
            return "not converted", report.failure or ""
        return _beside(file, calls, whole)


def _beside(file: Path, calls: list[dict[str, torch.Tensor]], whole: float) -> tuple[str, str]:
    results: list[Any] = []
    for make in (OrtSession, EvaluatorSession):
        try:
            session = make(file)
            results.append([session.run(feeds) for feeds in calls])
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")
    if any(isinstance(one, str) for one in results):
        refusals = [f"{name}: {one}" for name, one in zip(("onnxruntime", "evaluator"), results, strict=True) if one]
        return "refused", "; ".join(text for text in refusals if ": " in text)[:400]
    start = time.process_time()
    worst = 0.0
    for at, (expected, got) in enumerate(zip(*results, strict=True)):
        found = compare_outputs([str(i) for i in range(len(expected))], expected, got)
        wrong = [one for one in found if not one.agrees]
        if wrong:
            return "differs", f"set {at} of {len(calls)}: {wrong[0]}"
        worst = max([worst, *(one.max_absolute for one in found)])
    share = (time.process_time() - start) / whole
    return "agrees", f"{len(calls)} sets, off by {worst:.1e} at the most; compared in {share:.2%} of the run"


def _work(model: str, task: str, reply: Connection) -> None:
    try:
        reply.send(outcome(model, task))
    except BaseException:
        reply.send(("failed", traceback.format_exc(limit=-1)))


def in_process(model: str, task: str, timeout_s: float) -> tuple[str, str]:
    """The same in a fork, which may take so long."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_work, args=(model, task, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(timeout_s) else ("timed out", f"after {timeout_s:.0f} s")
    except EOFError:
        return "crashed", f"exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def main() -> int:
    """Prints a line for each model and the counts; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TEXT_TASKS)
    parser.add_argument("--most", type=int, default=None, help="models, drawn at random")
    parser.add_argument("--each-type-once", action="store_true", help="a type with its first task alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for a model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [(model, task) for task in options.tasks for model in models_of_task(task)]
    if options.each_type_once:
        cases = list({model: (model, task) for model, task in reversed(cases)}.values())
    random.Random(options.seed).shuffle(cases)

    counts: Counter[str] = Counter()
    for model, task in cases[: options.most]:
        word, text = in_process(model, task, options.timeout)
        counts[word] += 1
        print(f"{task} {model}: {word}: {' '.join(text.split())}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return 1 if counts.keys() & {"differs", "refused", "crashed", "failed"} else 0


if __name__ == "__main__":
    sys.exit(main())
