"""What an export is validated with when the original is not at hand: recorded calls, and the digests of its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import exportguard
from exportguard.command_line import main
from exportguard.errors import FileError
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import export_model
from exportguard.ship.recorded import validate_export
from exportguard.ship.staging import REPORT

PROGRAM = """
import torch

def make():
    return torch.nn.Linear(4, 2).eval(), (torch.randn(3, 4),), ({0: "rows"},)
"""


def export_of(program: str, folder: Path) -> Path:
    """A folder with what `make` of a program gives."""
    (folder / "mine.py").write_text(program)
    assert main(["export", "-m", f"{folder / 'mine.py'}:make", "-o", str(folder / "out"), "-q"]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of one's own."""
    return export_of(PROGRAM, tmp_path_factory.mktemp("own"))


def test_a_function_in_a_file_is_exported(exported: Path) -> None:
    assert sorted(path.name for path in exported.iterdir()) == ["examples.pt", REPORT, "model.onnx"]
    assert OrtSession(exported / "model.onnx").input_names == ["input"]


def test_an_export_is_validated_without_the_original(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(exported)]) == 0
    assert "2 comparisons agree" in capsys.readouterr().out


@pytest.mark.parametrize("runner", ["onnxruntime", "evaluator"])
def test_another_file_in_its_place_differs(runner: Any, exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    torch.manual_seed(1)
    exportguard.to_onnx(
        torch.nn.Linear(4, 2).eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), output=folder / "model.onnx"
    )
    report = validate_export(folder, runner)
    assert not report.ok
    assert [one.agrees for one in report.sets] == [False, False]


LARGE = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Linear(2100, 2100).eval(), (torch.randn(1, 2100),)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose weights lie beside the file."""
    return export_of(LARGE, tmp_path_factory.mktemp("large"))


def flips(place: float) -> Any:
    """Another lowest bit of the byte at a place between 0 and 1, which no output shows."""

    def change(content: bytearray) -> None:
        content[int(place * (len(content) - 4)) & -4] ^= 1

    return change


CHANGES: dict[str, tuple[str, Any, str]] = {
    "a bit of the first weight": ("model.onnx.data", flips(0), "model.onnx.data is not the file that was written"),
    "a bit in the middle": ("model.onnx.data", flips(0.5), "model.onnx.data is not the file that was written"),
    "a bit of the last weight": ("model.onnx.data", flips(1), "model.onnx.data is not the file that was written"),
    "a cut file": ("model.onnx.data", lambda content: content.__delitem__(slice(-8, None)), "is not the file that was"),
    "a longer file": ("model.onnx.data", lambda content: content.extend(b"x"), "is not the file that was written"),
    "no weights": ("model.onnx.data", None, "model.onnx.data is missing; copy the folder again, or export it again"),
    "no model": ("model.onnx", None, "model.onnx is missing"),
}


@pytest.mark.parametrize(("name", "change", "text"), CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_not_the_one_that_was_written_is_noticed(
    name: str, change: Any, text: str, large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(large, folder)
    assert main(["validate", str(folder), "-q"]) == 0
    content = bytearray((folder / name).read_bytes())
    (folder / name).unlink()
    if change is not None:
        change(content)
        (folder / name).write_bytes(content)
    assert main(["validate", str(folder), "-q"]) == 1
    assert text in " ".join(capsys.readouterr().out.split())


def test_configurations_may_be_changed_behind_an_export(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_model("llama", folder)
    told = json.loads((folder / REPORT).read_text())["sha256"]
    assert sorted(told) == ["config.json", "examples.pt", "generation_config.json", "model.onnx"]
    (folder / "generation_config.json").write_text("{}")
    assert validate_export(folder).ok


def test_a_file_that_does_not_load_is_a_failure_and_no_crash(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    (folder / "model.onnx").write_bytes(b"no model")
    assert validate_export(folder).failure
    (folder / "examples.pt").write_bytes(b"none")
    with pytest.raises(FileError, match="cannot be validated: examples"):
        validate_export(folder)


BROKEN: dict[str, tuple[str, object]] = {
    "another list": ("examples.pt", [5]),
    "no calls": ("examples.pt", []),
    "calls without outputs": ("examples.pt", [{"file": "model.onnx", "inputs": {"x": torch.zeros(1)}, "outputs": {}}]),
    "a report of another": ("export_report.json", b"[]"),
    "a cut report": ("export_report.json", b"{"),
    "no report": ("export_report.json", None),
    "no examples": ("examples.pt", None),
}


@pytest.mark.parametrize(("name", "content"), BROKEN.values(), ids=BROKEN)
def test_an_export_that_is_not_whole_is_not_right(
    name: str, content: object, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    (folder / name).unlink()
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    elif content is not None:
        torch.save(content, folder / name)
    assert main(["validate", str(folder), "-q"]) == 1
    assert f"cannot be validated: {name}" in capsys.readouterr().err.splitlines()[-1]
