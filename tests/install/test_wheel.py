"""The wheel that `make wheel` made, in a fresh environment, by the commands of docs/installation.md as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "installation.md"


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (ROOT / "dist").glob("exportguard-*.whl")  # `make wheel` makes it
    return found


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a user who never heard of this tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the page's commands ran, and what the last one printed."""
    folder = tmp_path_factory.mktemp("fresh")
    for name in ("requirements", "examples", "dist"):
        (folder / name).symlink_to(ROOT / name)
    first, commands = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert first == "make wheel\n"
    printed = ""
    for command in commands.splitlines():
        result = run(command, folder)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        printed = result.stdout
    return folder, printed


def test_five_commands_lead_to_generated_tokens(installed: tuple[Path, str]) -> None:
    _, printed = installed
    tokens = [int(token) for token in printed.split()]
    assert tokens[:3] == [5, 6, 7]
    assert len(tokens) == 11


def test_what_is_not_of_torch_or_the_system_lies_in_the_wheel(installed: tuple[Path, str]) -> None:
    folder, _ = installed
    packages = next((folder / "fresh/lib").glob("python*/site-packages"))
    needed = run(f"ldd {packages / 'exportguard/libexportguard_python.so'}", folder).stdout
    found = dict(re.findall(r"^\s*(lib\S+) => (\S+)", needed, re.MULTILINE))
    assert "not found" not in needed
    own = {name: Path(path).resolve().relative_to(packages).parts[0] for name, path in found.items()
           if Path(path).resolve().is_relative_to(packages)}  # fmt: skip
    assert set(own.values()) == {"exportguard", "exportguard.libs", "torch"}
    assert [name for name in found if "protobuf" in name and own.get(name) != "exportguard.libs"] == []
    assert [name for name in found if re.match(r"lib(torch|c10)", name) and own.get(name) != "torch"] == []


def test_the_wheel_is_one_for_every_such_linux_and_asks_for_its_torch(wheel: Path) -> None:
    assert re.search(r"-cp3\d+-cp3\d+-manylinux_2_\d+_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(path).decode()
    major, minor, *_ = torch.__version__.split(".")
    assert f"Requires-Dist: torch=={major}.{minor}.*\n" in metadata


def test_another_torch_is_told_in_a_line(installed: tuple[Path, str]) -> None:
    folder, _ = installed
    version = next((folder / "fresh/lib").glob("python*/site-packages")) / "torch" / "version.py"
    own = version.read_text()
    version.write_text(re.sub(r"(?m)^__version__ = .*", "__version__ = '2.12.1+cpu'", own))
    try:
        command = run("fresh/bin/exportguard export -m llama -o other -q", folder)
        name = run("fresh/bin/python -c 'import exportguard; exportguard.to_onnx'", folder)
    finally:
        version.write_text(own)
    said = f"exportguard was built against torch {torch.__version__}, but torch 2.12.1+cpu is installed; install torch"
    assert command.returncode != 0
    assert command.stderr.startswith(f"Error: {said}")
    assert said in name.stderr.splitlines()[-1]
    assert not (folder / "other").exists()


def test_a_build_in_an_environment_without_torch_says_what_to_do(tmp_path: Path) -> None:
    command = "import wheel_requirements as own; print(own.dynamic_metadata('dependencies', {'packages': ['click']}))"
    isolated = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); {command}"]
    result = subprocess.run(isolated, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout == "['torch>=2.11,<2.14', 'click']\n"
