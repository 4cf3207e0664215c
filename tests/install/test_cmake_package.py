"""The CMake package, as a project outside of this tree uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("EXPORTGUARD_BUILD", ROOT / "build"))


def run(*command: str | Path, **options: object) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return str(result.stdout)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/cmake_project, built against an installation of this build."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
    build = folder / "build"
    source = ROOT / "examples" / "cmake_project"
    settings = [f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}", f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *settings)
    run("cmake", "--build", build)
    return build


def test_a_project_converts_with_the_installed_library(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    text = run(project / "lower_text", path)
    assert "Relu" in text
    onnx.checker.check_model(str(path))


def test_a_project_opens_a_guard_in_an_embedded_interpreter(project: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    assert "installed" in run(project / "guard_status", env=environment)


def test_the_package_refuses_a_python_without_torch(project: Path, tmp_path: Path) -> None:
    source = ROOT / "examples" / "cmake_project"
    run("python3", "-m", "venv", "--without-pip", tmp_path / "bare")
    settings = [
        f"-DCMAKE_PREFIX_PATH={project.parent / 'prefix'}",
        f"-DPython_EXECUTABLE={tmp_path / 'bare/bin/python'}",
    ]
    command = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(tmp_path / "build"), *settings]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert "torch is not installed for" in result.stderr
