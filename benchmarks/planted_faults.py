"""The search for the first node that diverges: faults planted at random into models of 200 to 5,000 nodes.

Every fault that changes an output must be named; right models must have none. The time is that of the search over that
of a plain comparison of both sides' outputs, in CPU seconds; the search for a fault is handed a file, which the plain
one reads as well.

    python benchmarks/planted_faults.py --faults 20 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch

import exportguard
from exportguard import _core
from exportguard.conversion import convert
from exportguard.reading import read
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

from fault_models import FAMILIES
from graph_faults import KINDS, planted

LAYERS = {"decoder": (5, 40, 100), "encoder": (8, 60), "convolutions": (30, 120)}


class Subject:
    """A model, what it was made from, and inputs."""

    def __init__(self, family: str, layers: int, optimize: bool) -> None:
        torch.manual_seed(layers)
        module, args, shapes = FAMILIES[family](layers)
        self.name = f"{family} of {layers} layers{', optimized' if optimize else ''}"
        self.exported = exported_module(
            ExportRequest.of(module, args, None, dynamic_shapes=shapes, options=ExportOptions())
        )
        self.model = convert(read(self.exported), opset=23, options=ExportOptions(), optimize=optimize)
        self.proto = onnx.load_from_string(self.model.to_bytes())
        self.inputs = {value.name: tensor for value, tensor in zip(self.model.inputs, args, strict=True)}
        self.expected = self.model.run(self.inputs, runner="evaluator")
        exportguard.find_divergence(self.exported.program, self.model, self.inputs)  # what is made ready once
        self.plain = least(lambda: self.run_both(self.model))

    def run_both(self, model: exportguard.OnnxModel) -> None:
        """What a comparison of outputs takes: the program and the model, made ready and run."""
        program = read(self.exported).graph
        _core.functionalize(program)
        _core.Evaluator(program).run(list(self.inputs.values()))
        with contextlib.suppress(exportguard.ExportGuardError):
            _core.Evaluator(model._core).run(list(self.inputs.values()))

    def plain_with(self, wrong: bytes) -> float:
        """The same for a file, which is read."""
        return least(lambda: self.run_both(exportguard.load(wrong)))

    def shows(self, wrong: bytes) -> bool:
        """Whether an output is another one."""
        try:
            got = exportguard.load(wrong).run(self.inputs, runner="evaluator")
        except exportguard.ExportGuardError:
            return True
        found = exportguard.compare_outputs(list(got), list(self.expected.values()), list(got.values()))
        return not all(output.agrees for output in found)


def least(work: Callable[[], Any], rounds: int = 3) -> float:
    """CPU seconds of the fastest of several runs."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> int:
    """Plants, searches and prints; 1 if a fault was not named, or a right model has one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    subjects = [
        Subject(family, layers, optimize)
        for family, sizes in LAYERS.items()
        for layers in sizes
        for optimize in (True, False)
    ]
    wrong_answers = 0
    for subject in subjects:
        begin = time.process_time()
        report = exportguard.find_divergence(subject.exported.program, subject.model, subject.inputs)
        times = (time.process_time() - begin) / subject.plain
        wrong_answers += not report.agrees
        verdict = "no divergence" if report.agrees else f"FALSE ALARM: {report}"
        print(f"{subject.name}: {subject.model.node_count} nodes, {times:.1f} plain runs: {verdict}")

    named = 0
    ratios = []
    while named < options.faults:
        subject, kind = draw.choice(subjects), draw.choice([*KINDS])
        result = planted(subject.proto, kind, draw.randrange(1 << 30))
        if result is None or not subject.shows(data := result[0].SerializeToString()):
            continue
        plain = subject.plain_with(data)
        begin = time.process_time()
        report = exportguard.find_divergence(subject.exported.program, data, subject.inputs)
        times = (time.process_time() - begin) / plain
        ratios.append(times)
        is_right = report.first is not None and result[1].is_named_by(report.first.node.outputs)
        wrong_answers += not is_right
        named += 1
        verdict = str(report.first.node) if is_right and report.first else f"NOT NAMED {result[1]}: {report}"
        print(f"{kind} in {subject.name}: {times:.1f} plain runs: {verdict}")
    print(f"{options.faults} faults and {len(subjects)} right models: {wrong_answers} wrong answers")
    print(f"a search takes {sum(ratios) / len(ratios):.1f} plain runs in the mean, {max(ratios):.1f} at the most")
    return 1 if wrong_answers else 0


if __name__ == "__main__":
    sys.exit(main())
