"""What the installed onnxruntime computes otherwise than ONNX says is known, and written around where it can be met."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import onnxruntime
import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "runtime_faults.py"

#: In onnxruntime 1.31, by what lowerings do instead: sums that depend on the order of the additions count as equal.
KNOWN = {
    "Sign": "NaN stays NaN here, and is 0 in torch: it is chosen by comparison",
    "Gelu": "at infinity",
    "Mod": "of a finite number by infinity; compared with fmod of C",
    "Pow": "integers go through doubles: repeated squaring",
    "ReduceSum": "integers go through doubles: a product of matrices",
    "ReduceMean": "the order of the additions, and integers through doubles",
    "ReduceProd": "integers go through doubles: one factor at a time",
    "ReduceL1": "integers go through doubles: never written of integers",
    "ReduceL2": "integers go through doubles: never written of integers",
    "ReduceSumSquare": "integers go through doubles: never written of integers",
    "ReduceLogSumExp": "integers go through doubles: never written of integers",
    "LogSoftmax": "of numbers as far apart as float64 has them",
    "ScatterElements": "max and min drop NaN: flags of NaN are scattered as well; no float16 that reduces",
    "MatMul of a transposed matrix by a vector": "the transposition is lost: the vector gets an axis",
    "MatMul times a number": "the number of a float64 product becomes a float32: it is split in two",
    "MatMul of nothing, transposed": "ends the process or leaves what the memory held: a Reshape, a Where",
    "MatMul of one matrix and no other": "an error; not written around",
    "LSTM of nothing": "ends the process; not written around",
    "GRU of nothing": "ends the process; not written around",
    "RNN of nothing": "ends the process; not written around",
    "LayerNormalization of nothing": "an error; not written around",
    "Einsum of nothing": "ends the process; written of one operand alone",
    "MaxPool of NaN": "NaN is dropped: flags of NaN are pooled as well",
    "MaxPool of a Pad": "the zeros become minus infinity: auto_pad says VALID",
    "DFT": "sums in float32 lose digits: in float64",
    "DFT inverse": "a float32 scales the inverse of float64: forward, of the conjugate",
}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("runtime_faults", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_other_operator_is_wrong(benchmark: ModuleType) -> None:
    onnxruntime.set_default_logger_severity(4)
    wrong = {}
    for case in benchmark.all_cases():
        kind, text = benchmark.outcome(case)
        assert kind != "not built", f"{case.name} of {case.dtype}: {text}"
        names = {case.name, case.name.split()[0], case.name.partition(" [")[0]}
        if kind == "wrong" and not names & KNOWN.keys():
            wrong[case.name, case.dtype] = text
    assert not wrong


def test_the_probe_finds_a_fault(benchmark: ModuleType) -> None:
    """A comparison that cannot fail would be none."""
    x = benchmark.torch.tensor([1.0, 2.0])
    assert "2.0 at [1], expected 3.0" in benchmark.difference(x, x + benchmark.torch.tensor([0.0, 1.0]))
