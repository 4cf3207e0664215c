"""Random configurations of the architectures of transformers, each exported once and compared at many sizes.

`python benchmarks/varied_configurations.py -t text-generation --count 50` draws an architecture and one to four fields
of its small configuration (switches, activations, heads, windows, kinds of layers and of rotary positions, …), exports
the model with every axis dynamic, and compares it with eager at every combination of small, usual and long sizes, with
and without padding. One line for each draw that runs eagerly; the exit code is 1 if one of them is not right.
`--reduce` leaves out of a draw that is not right what it goes wrong without; `-m llama --changes '{"head_dim": 8}'`
repeats a draw. Each draw is a process of its own, bounded in time.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING
from variation import drawn_changes

from exportguard.models import models_of_task
from exportguard.models.catalogue import DTYPES, BuildOptions, build_architecture
from exportguard.models.shrink import shrunk
from exportguard.models.tables import Architecture, exceptions
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case

_NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Draw:
    """An architecture, what it is used for, and what is changed in its small configuration."""

    model: str
    task: str
    changes: Mapping[str, Any]
    attention: str = "sdpa"
    dtype: str = "float32"

    def __str__(self) -> str:
        attention = "" if self.attention == "sdpa" else f" --attention {self.attention}"
        return f"-t {self.task} -m {self.model}{attention} --changes '{json.dumps(self.changes)}'"


def draws(tasks: Sequence[str], models: Sequence[str], source: random.Random, dtype: str) -> Iterator[Draw]:
    """Without end."""
    pairs = [(name, task) for task in tasks for name in models_of_task(task) if not models or name in models]
    while True:
        name, task = source.choice(pairs)
        try:
            config = shrunk(CONFIG_MAPPING[name](), exceptions().get(name, {}))
            changes = drawn_changes(config, source)
        except Exception as error:  # a configuration may raise whatever it likes
            logging.debug("%s: %s", name, error)
            continue
        attention = source.choice(("sdpa", "sdpa", "eager"))
        yield Draw(model=name, task=task, changes=changes, attention=attention, dtype=dtype)


def outcome(draw: Draw) -> str:
    """`right`, `not run: …`, or what is wrong."""
    architecture = Architecture(name=draw.model, task=draw.task, model_type=draw.model, config=draw.changes)
    try:
        case = build_architecture(architecture, BuildOptions(task=draw.task, dtype=DTYPES[draw.dtype]))
        if draw.attention != "sdpa":
            case.model.set_attn_implementation(draw.attention)
    except Exception as error:  # nobody said that these values fit each other
        return f"{_NOT_RUN}: {_first_line(error)}"
    with tempfile.TemporaryDirectory() as folder:
        return _told(validate_case(case, Path(folder, "model.onnx"), ValidateOptions(all_sizes=True)))


def _told(report: ValidationReport) -> str:
    if report.ok:
        return "right"
    if report.outcome == "does not run eagerly":
        return f"{_NOT_RUN}: {report.failure.strip().splitlines()[0]}"
    fixed = [f"{axis.input} {axis.axis} {axis.reason}" for axis in report.axes if not axis.kept]
    wrong = [f"{one.name} {dict(one.sizes)}: {_how(one)}" for one in report.sets if not one.agrees]
    parts = [report.failure.replace("\n", " ")[:400], *fixed[:1], *wrong[:2]]
    return f"{report.outcome} ({len(wrong)} of {len(report.sets)}): {'; '.join(filter(None, parts))}"


def _how(one: Any) -> str:
    if one.error:
        return str(one.error)[:300]
    output = next(output for output in one.outputs if not output.agrees)
    return output.problem or f"{output.name} {output.max_absolute:.1e}, {output.share_over:.1%} over"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:200]


def _send(draw: Draw, seconds: float, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    sender.send(outcome(draw))


def bounded(draw: Draw, seconds: float) -> str:
    """`outcome` in a process of its own, which may take that much of a processor's time."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_send, args=(draw, seconds, sender))
    process.start()
    sender.close()
    try:
        return str(receiver.recv())
    except EOFError:
        process.join()
        timed_out = process.exitcode == -signal.SIGXCPU
        return f"timed out after {seconds:.0f} s" if timed_out else f"crashed with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def reduced(draw: Draw, seconds: float) -> Draw:
    """The draw without the changes that it goes wrong without as well."""
    for name in list(draw.changes):
        fewer = {key: value for key, value in draw.changes.items() if key != name}
        smaller = Draw(**{**vars(draw), "changes": fewer})
        text = bounded(smaller, seconds)
        draw = draw if text == "right" or text.startswith(_NOT_RUN) else smaller
    return draw


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--task", action="append", help="text-generation if there is none")
    parser.add_argument("-m", "--model", action="append", default=[], help="all of the tasks if there is none")
    parser.add_argument("--count", type=int, default=30, help="of draws that run eagerly")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of a processor's time for a draw")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    parser.add_argument("--changes", help="repeats the draw with these, in JSON")
    parser.add_argument("--reduce", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Draws until so many have run."""
    options = _options()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork")
    tasks = options.task or ["text-generation"]
    if options.changes is not None:
        changes = json.loads(options.changes)
        once = Draw(
            model=options.model[0], task=tasks[0], changes=changes, attention=options.attention, dtype=options.dtype
        )
        print(outcome(once))
        return 0
    counts: Counter[str] = Counter()
    for draw in draws(tasks, options.model, random.Random(options.seed), options.dtype):
        start = time.monotonic()
        text = bounded(draw, options.seconds)
        if text.startswith(_NOT_RUN):
            counts[_NOT_RUN] += 1
            logging.debug("%s: %s", draw, text)
            continue
        right = text == "right"
        counts["right" if right else "not right"] += 1
        found = reduced(draw, options.seconds) if options.reduce and not right else draw
        print(f"{time.monotonic() - start:5.1f} s  {found}: {text}", flush=True)
        if counts["right"] + counts["not right"] >= options.count:
            break
    print(dict(counts))
    return int(bool(counts["not right"]))


if __name__ == "__main__":
    sys.exit(main())
