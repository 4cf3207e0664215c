"""The example programs, built with the tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy
import onnx
import pytest
import torch

import exportguard

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("EXPORTGUARD_BUILD", ROOT / "build"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


def example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(BUILD / "examples" / "cpp" / f"example_{name}"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)


def test_the_llama_of_the_example_agrees_with_eager(tmp_path: Path) -> None:
    path = tmp_path / "llama.onnx"
    result = example("convert_llama", path)
    assert result.returncode == 0, result.stderr
    assert "past 0: largest difference" in result.stdout
    assert "past_key_values.0.key" in [value.name for value in onnx.load(str(path)).graph.input]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A layer that was converted, and one call of it in the layout of onnx's test data."""
    layer = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4)
    exportguard.to_onnx(layer, (x,), dynamic_shapes=({0: "batch"},)).save(tmp_path / "layer.onnx")
    for name, value in {"input_0": x, "output_0": layer(x).detach()}.items():
        (tmp_path / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(value.numpy(), name).SerializeToString())
    return tmp_path


def test_a_model_is_proved_without_python(recorded: Path) -> None:
    result = example("prove_model", recorded / "layer.onnx", recorded)
    assert result.returncode == 0, result.stderr
    assert "output_0: agrees" in result.stdout
    libraries = subprocess.run(
        ["ldd", str(BUILD / "examples" / "cpp" / "example_prove_model")], capture_output=True, text=True, check=True
    )
    assert "libpython" not in libraries.stdout


def test_a_wrong_model_is_not_proved(recorded: Path) -> None:
    wrong = onnx.numpy_helper.from_array(numpy.zeros((2, 3), numpy.float32), "output_0")
    (recorded / "output_0.pb").write_bytes(wrong.SerializeToString())
    result = example("prove_model", recorded / "layer.onnx", recorded)
    assert result.returncode == 1
    assert "output_0: differs" in result.stdout


def test_a_call_that_is_cut_short_is_named(recorded: Path) -> None:
    path = recorded / "input_0.pb"
    path.write_bytes(path.read_bytes()[:-3])
    result = example("prove_model", recorded / "layer.onnx", recorded)
    assert result.returncode == 1
    assert str(path) in result.stderr


def test_an_unwritable_path_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "llama.onnx"
    result = example("convert_llama", path)
    assert result.returncode == 1
    assert str(path) in result.stderr


@pytest.mark.parametrize("arguments", [(), ("a", "b")], ids=["none", "two"])
def test_a_wrong_call_prints_the_usage(arguments: tuple[str, ...]) -> None:
    result = example("convert_llama", *arguments)
    assert result.returncode == 2
    assert "usage:" in result.stderr
