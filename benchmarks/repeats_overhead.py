"""Whether tracing once costs where little repeats: a draw of small models of two layers, exported both ways by turns.

    python benchmarks/repeats_overhead.py --count 30 --seed 0
    python benchmarks/repeats_overhead.py --count 20 --rounds 1 --instructions    # on a machine that is not quiet

CPU seconds of the fastest of several rounds, both sides in one process. It ends with 1 if a model is slower by more
than 5 %, and in every round, which noise seldom makes it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from instructions import instruction_clock

from exportguard.errors import ExportGuardError
from exportguard.models import BuildOptions, models_of_task
from exportguard.validation.validate import ValidateOptions, validate_model

TASKS = ("text-generation", "text2text-generation", "fill-mask", "image-classification", "automatic-speech-recognition")
SLOWER = 1.05


@dataclass(frozen=True)
class Row:
    """The CPU seconds of each round, by side."""

    model: str
    once: Sequence[float]
    everything: Sequence[float]

    @property
    def ratio(self) -> float:
        return min(self.once) / min(self.everything)

    def is_slower(self) -> bool:
        """By more than 5 %, in its fastest round and in each."""
        return self.ratio > SLOWER and all(a > b for a, b in zip(self.once, self.everything, strict=True))


def seconds(model: str, task: str, repeats: str, clock: Callable[[], float]) -> float:
    """CPU seconds of one export and its conversion, or what else the clock counts."""
    gc.collect()
    options = ValidateOptions(build=BuildOptions(task=task), repeats=repeats, run=False)  # type: ignore[arg-type]
    start = clock()
    report = validate_model(model, options)
    taken = clock() - start
    if report.failure:
        raise ExportGuardError(report.failure)
    return taken


def drawn(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Models with their tasks, without end."""
    known = [(name, task) for task in TASKS for name in models_of_task(task)]
    random.Random(seed).shuffle(known)
    yield from known


def measured(model: str, task: str, rounds: int, clock: Callable[[], float]) -> Row:
    """Both sides by turns, after one export of each that imports what is imported late."""
    sides: dict[str, list[float]] = {"trace once": [], "trace all": []}
    for place in range(rounds + 1):
        for repeats, found in sides.items():
            taken = seconds(model, task, repeats, clock)
            if place:
                found.append(taken)
    return Row(f"{model} ({task})", sides["trace once"], sides["trace all"])


def main() -> int:
    """Prints a line for each model and the median; 1 if one is slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instructions", action="store_true", help="count instructions in place of CPU seconds")
    options = parser.parse_args()
    clock = instruction_clock() if options.instructions else time.process_time
    warnings.simplefilter("ignore")
    logging.getLogger("exportguard").setLevel(logging.ERROR)

    rows: list[Row] = []
    for model, task in drawn(options.count, options.seed):
        try:
            rows.append(measured(model, task, options.rounds, clock))
        except ExportGuardError:
            continue  # it is exported neither way
        print(f"{rows[-1].ratio:.2f} {rows[-1].model}{'  SLOWER' if rows[-1].is_slower() else ''}", flush=True)
        if len(rows) == options.count:
            break
    slower = [row.model for row in rows if row.is_slower()]
    median = statistics.median(row.ratio for row in rows)
    print(f"once / all: median {median:.2f}, most {max(row.ratio for row in rows):.2f}; slower: {slower or 'none'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
