"""A part of what `operator_samples.py`, `operator_programs.py` and `operator_calls.py` in `benchmarks` try."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
STEP = 60
STEP_OF_CALLS = 30
PROGRAMS = range(4000, 4006)

#: Signs are free; fits are good to eight digits; a number is a float64 in a file.
OTHERWISE = {
    "item",
    "linalg.eigh",
    "special.airy_ai",
    "special.bessel_j0",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.bessel_y1",
}


@functools.cache
def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_operators_of_float64_have_the_digits_of_float64() -> None:
    samples = benchmark("operator_samples")
    outcomes = samples.Outcomes(("plain",), seed=0)
    taking = (operator for operator in samples.op_db if torch.float64 in operator.supported_dtypes("cpu"))
    names = [samples.name_of(operator) for operator in itertools.islice(taking, 0, None, STEP)]
    cases = samples.cases(names, [torch.float64], 1, 0)
    found = [(case.name, kind, text) for case in cases for kind, text in outcomes.of(case)]
    assert sum(kind.startswith("right") for _, kind, _ in found) > 8
    wrong = [told for told in found if told[1].startswith("other") and told[0] not in OTHERWISE]
    assert wrong == []


def test_a_difference_of_float32_is_one() -> None:
    """A comparison that cannot fail would be none."""
    samples = benchmark("operator_samples")
    exact = torch.tensor([0.1], dtype=torch.float64)
    assert samples.difference(exact.float().double(), exact)


@pytest.mark.parametrize("seed", PROGRAMS)
def test_random_programs_give_what_eager_gives(seed: int) -> None:
    programs = benchmark("operator_programs")
    source = random.Random(seed)
    program = programs.drawn(source)
    found = programs.outcome(program, source)
    assert found.kind in ("right", "refused", "runs where eager refuses"), f"{found.text}\n{program.text()}"


def test_calls_that_are_drawn_by_schemas_give_what_eager_gives() -> None:
    drawn = benchmark("operator_calls")
    found = []
    for operator in itertools.islice(drawn.operators(()), 3, None, STEP_OF_CALLS):
        torch.manual_seed(0)
        for call in drawn.calls(operator, 3, 200, random.Random(str(operator)), lambda line: None):
            found.append((str(call), *drawn.outcome(call)))
    assert sum(kind == "right" for _, kind, _ in found) > 40
    assert [told for told in found if told[1] not in {"right", "refused", "stops in torch.export"}] == []
