"""The search for the first node that diverges: faults planted at random into models of 200 to 5,000 nodes.

Every fault that changes an output must be named; right models, of which there are 22, must have none. Every second
fault is of a kind that was written down (an axis, an epsilon, a mask off by one, …), the others are generated from what
the schema of an operator lets go wrong, in the main graph and in bodies of If and Loop. The time is that of the search
over that of a plain comparison of both sides' outputs, in CPU seconds; the search for a fault is handed a file, which
the plain one reads as well.

    python benchmarks/planted_faults.py --faults 40 --seed 0
    python benchmarks/planted_faults.py --faults 200 --families encoder branches --generated 1
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

from fault_generator import Generated, generated
from fault_models import FAMILIES, MORE_FAMILIES
from graph_faults import KINDS, Fault, planted

LAYERS = {
    "decoder": (5, 40, 100),
    "encoder": (8, 60),
    "convolutions": (30, 120),
    "branches": (40,),
    "steps": (25,),
    "recurrent": (8,),
    "pictures": (20,),
}


class Subject:
    """A model, what it was made from, and inputs."""

    def __init__(self, family: str, layers: int, optimize: bool) -> None:
        torch.manual_seed(layers)
        module, args, shapes = {**FAMILIES, **MORE_FAMILIES}[family](layers)
        self.name = f"{family} of {layers} layers{', optimized' if optimize else ''}"
        self.exported = exported_module(
            ExportRequest.of(module, args, None, dynamic_shapes=shapes, options=ExportOptions())
        )
        self.model = convert(read(self.exported), opset=23, options=ExportOptions(), optimize=optimize)
        self.proto = onnx.load_from_string(self.model.to_bytes())
        self.inputs = {value.name: tensor for value, tensor in zip(self.model.inputs, args, strict=True)}
        self.expected = self.model.run(self.inputs, runner="evaluator")
        exportguard.find_divergence(self.exported.program, self.model, self.inputs)  # what is made ready once
        self.plain, _ = least(lambda: self.run_both(self.model))

    def run_both(self, model: exportguard.OnnxModel) -> None:
        """What a comparison of outputs takes: the program and the model, made ready and run."""
        program = read(self.exported).graph
        _core.functionalize(program)
        _core.Evaluator(program).run(list(self.inputs.values()))
        with contextlib.suppress(exportguard.ExportGuardError):
            _core.Evaluator(model._core).run(list(self.inputs.values()))

    def plain_with(self, wrong: bytes) -> float:
        """The same for a file, which is read."""
        return least(lambda: self.run_both(exportguard.load(wrong)))[0]

    def search(self, model: exportguard.OnnxModel | bytes) -> tuple[float, exportguard.DivergenceReport]:
        """What the search for the first node takes, and what it finds."""
        return least(lambda: exportguard.find_divergence(self.exported.program, model, self.inputs))

    def shows(self, wrong: bytes) -> bool:
        """Whether an output is another one."""
        try:
            got = exportguard.load(wrong).run(self.inputs, runner="evaluator")
        except exportguard.ExportGuardError:
            return True
        found = exportguard.compare_outputs(list(got), list(self.expected.values()), list(got.values()))
        return not all(output.agrees for output in found)


def fault_in(subject: Subject, draw: random.Random, share: float) -> tuple[str, bytes, Fault | Generated] | None:
    """What was done, the file, and what should be named; None where that fault has no place or does not show."""
    if draw.random() < share:
        kind = "generated"
        result: Any = generated(subject.proto, draw.randrange(1 << 30), depth=draw.choice([0, 0, 1]))
    else:
        kind = draw.choice([*KINDS])
        result = planted(subject.proto, kind, draw.randrange(1 << 30))
    if result is None:
        return None
    data = result[0].SerializeToString()
    try:
        _core.Evaluator(exportguard.load(data)._core)
    except exportguard.ExportGuardError:  # no model of any kind
        return None
    what = f"{kind} ({result[1].what})" if isinstance(result[1], Generated) else kind
    return (what, data, result[1]) if subject.shows(data) else None


def is_named(fault: Fault | Generated, report: exportguard.DivergenceReport) -> bool:
    """Whether the node, or the one within its body, is one of those that were changed."""
    first = report.first
    if first is None:
        return False
    is_inside = first.inside is not None and fault.is_named_by(first.inside.outputs)
    return is_inside or fault.is_named_by(first.node.outputs)


def least(work: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """CPU seconds of the fastest of several runs, and what the last one returned.

    Both that are compared are measured alike: Python walks all that the other models are made of in whichever run
    happens to fill its counter of new objects, which takes ten times what a small model's run does.
    """
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        result = work()
        times.append(time.process_time() - begin)
    return min(times), result


def main() -> int:
    """Plants, searches and prints; 1 if a fault was not named, or a right model has one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", choices=[*LAYERS], default=[*LAYERS])
    parser.add_argument("--generated", type=float, default=0.5, help="share of the faults that are generated")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    subjects = [
        Subject(family, layers, optimize)
        for family in options.families
        for layers in LAYERS[family]
        for optimize in (True, False)
    ]
    wrong_answers = search_right_models(subjects)

    named = 0
    ratios = []
    while named < options.faults:
        subject = draw.choice(subjects)
        made = fault_in(subject, draw, options.generated)
        if made is None:
            continue
        kind, data, fault = made
        plain = subject.plain_with(data)
        search, report = subject.search(data)
        times = search / plain
        ratios.append(times)
        is_right = is_named(fault, report)
        wrong_answers += not is_right
        named += 1
        verdict = str(report.first.node) if is_right and report.first else f"NOT NAMED {fault}: {report}"
        print(f"{kind} in {subject.name}: {times:.1f} plain runs: {verdict}", flush=True)
    print(f"{options.faults} faults and {len(subjects)} right models: {wrong_answers} wrong answers")
    print(f"a search takes {sum(ratios) / len(ratios):.1f} plain runs in the mean, {max(ratios):.1f} at the most")
    return 1 if wrong_answers else 0


def search_right_models(subjects: list[Subject]) -> int:
    """How many of them something is found in."""
    false_alarms = 0
    for subject in subjects:
        search, report = subject.search(subject.model)
        times = search / subject.plain
        false_alarms += not report.agrees
        verdict = "no divergence" if report.agrees else f"FALSE ALARM: {report}"
        print(f"{subject.name}: {subject.model.node_count} nodes, {times:.1f} plain runs: {verdict}", flush=True)
    return false_alarms


if __name__ == "__main__":
    sys.exit(main())
