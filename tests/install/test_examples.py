"""The example programs, built with the tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import onnx
import pytest

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
