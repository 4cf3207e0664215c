"""What is told of a wrong call of the evaluator, of a comparison and of a search: one line that says what to pass."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import exportguard
from exportguard import OnnxModel, _core
from exportguard.command_line import main
from exportguard.errors import ExportGuardError
from exportguard.validation.model_inputs import random_inputs
from exportguard.validation.profile import profile

X = torch.ones(2, 3)


def model(operator: str, size: str = "n") -> OnnxModel:
    text = f"opset 20\ngraph(%x: f32[{size},3]):\n  %y: f32[{size},3] = {operator}(%x)\n  return (%y)\n"
    return OnnxModel(_core.Model.parse(text), 20)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "a list": (lambda: model("Relu").run([X], runner="evaluator"), "inputs must be a dictionary by name"),  # type: ignore[arg-type]
    "another size": (lambda: model("Relu").run({"x": torch.ones(2, 4)}), "must have the sizes"),
    "a fixed size": (lambda: model("Relu", "5").run({"x": X}), "input x must have the sizes"),
    "a list to compare": (lambda: exportguard.compare(model("Relu"), model("Neg"), [X]), "inputs must be a dictionary"),  # type: ignore[arg-type]
    "a size as text": (lambda: random_inputs(model("Relu"), {"n": "3"}), "sizes['n'] must be an integer"),  # type: ignore[dict-item]
    "a size below 0": (lambda: random_inputs(model("Relu"), {"n": -1}), "sizes['n'] must be an integer of at least 0"),
    "a size beyond int64": (
        lambda: random_inputs(model("Relu"), {"n": 10**20}),
        "sizes['n'] must be an integer of at most",
    ),
    "a size beyond the memory": (lambda: random_inputs(model("Relu"), {"n": 10**17}), "x of shape"),
    "a size beyond all numbers": (lambda: random_inputs(model("Relu"), {"n": 2**63 - 1}), "give smaller sizes"),
    "positions beyond int64": (
        lambda: model("Relu").optimize(target="onnxruntime-genai", positions=10**20),
        "positions must be an integer of at most",
    ),
    "no divergence": (
        lambda: exportguard.write_reproduction(None, Path("nowhere")),  # type: ignore[arg-type]
        "divergence must be the divergence of a report",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_is_refused_in_a_line(call: str) -> None:
    made, told = CALLS[call]
    with pytest.raises(ExportGuardError) as caught:
        made()
    assert told in str(caught.value)


def test_a_profile_of_what_onnxruntime_does_not_know_is_refused() -> None:
    with pytest.raises(ExportGuardError, match="onnxruntime cannot load the model"):
        profile(model("com.microsoft::Nothing"), {"x": X}, runs=1)


def test_a_device_that_is_not_there_is_refused() -> None:
    device = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ExportGuardError, match=f"device '{device}' cannot be used"):
        model("Relu").run({"x": X}, runner="evaluator", device=device)


def test_two_models_are_searched_without_inputs() -> None:
    found = exportguard.find_divergence(model("Relu"), model("Neg"))
    assert found.first is not None
    assert found.first.node.operator == "Neg"


# A process that is started in the background may ignore the signal from its beginning.
ENDLESS = """
import signal
import torch
import exportguard
from exportguard import _core

text = '''opset 22
graph(%x: f32[2], %go: bool[] = {true}):
  %y = Loop(_, %go, %x) {body=graph(%i: i64[], %c: bool[], %v: f32[2]):
      %d = Identity(%c)
      %w = Neg(%v)
      return (%d, %w)}
  return (%y)
'''
model = exportguard.OnnxModel(_core.Model.parse(text), 22)
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
WORK
"""


@pytest.mark.parametrize(
    "work",
    ["model.run({'x': torch.ones(2)}, runner='evaluator')", "exportguard.compare(model, model)"],
    ids=["run", "compare"],
)
def test_an_interrupt_ends_a_loop_without_end(work: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS.replace("WORK", work)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in told, told


def test_the_command_tells_of_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (str(model(name).save(tmp_path / f"{name}.onnx")) for name in ("Relu", "Neg"))
    assert main(["compare", first, second, "-o", first]) == 1
    assert "cannot write the reproduction" in capsys.readouterr().err
