"""The command line: subcommands that are found, options, and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import exportguard
from exportguard import _core
from exportguard.axes.bound import AxisBound, Kind
from exportguard.axis_report import AxisOutcome
from exportguard.command_line import build, main
from exportguard.commands import validate as validate_command
from exportguard.ship.quantization import QUANTIZATIONS, quantize_file
from exportguard.validation.discrepancies import Discrepancy
from exportguard.validation.exporters import file_name
from exportguard.validation.set_result import SetResult
from exportguard.validation.validate import ValidateOptions, ValidationReport


def report(**fields: Any) -> ValidationReport:
    return ValidationReport(model="llama", exporter="exportguard", opset=22, dtype="float32", device="cpu", **fields)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the validation: `result` is what it returns, `name` and `options` what it was given."""
    calls: dict[str, Any] = {"result": report()}

    def validate_model(name: str, options: ValidateOptions, progress: Any, settled: Any) -> ValidationReport:
        calls.update(name=name, options=options)
        progress("working")
        result: ValidationReport = calls["result"]
        return result

    monkeypatch.setattr(validate_command, "validate_model", validate_model)
    return calls


def test_every_module_of_commands_is_a_subcommand() -> None:
    names = build().list_commands(None)  # type: ignore[arg-type]
    assert {"validate", "models"} <= set(names)


def test_a_validation_that_agrees_exits_with_0(given: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-m", "llama"]) == 0
    assert given["name"] == "llama"
    assert "ok llama" in capsys.readouterr().out


def test_a_validation_that_differs_exits_with_1(given: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Discrepancy(name="logits", dtype="float32", shape=(2, 3), max_absolute=1.0, share_over=0.5)
    given["result"] = report(sets=[SetResult(name="empty past", sizes={"past": 0}, outputs=[wrong])])
    assert main(["validate", "-m", "llama"]) == 1
    assert "wrong on empty past" in capsys.readouterr().out


def test_a_failure_exits_with_1_and_is_shown(given: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    given["result"] = report(failure="LoweringError: aten.foo.default has no lowering")
    assert main(["validate", "-m", "llama"]) == 1
    assert "aten.foo.default has no lowering" in capsys.readouterr().out


def test_every_option_reaches_the_validation(given: dict[str, Any], tmp_path: Path) -> None:
    arguments = "validate -m bert --no-run --export onnx-dynamo --dtype float16 --device cuda --no-patch --no-rewrite"
    assert main([*arguments.split(), "--opset", "20", "-t", "fill-mask", "-o", str(tmp_path)]) == 0
    options = given["options"]
    assert (options.run, options.exporter, options.opset) == (False, "onnx-dynamo", 20)
    assert (options.patch, options.rewrite) == (False, False)
    assert (str(options.build.dtype), options.build.device) == ("torch.float16", "cuda")
    assert (options.build.task, options.folder) == ("fill-mask", tmp_path)


def test_the_report_is_written_as_json(given: dict[str, Any], tmp_path: Path) -> None:
    bound = AxisBound(condition="seq <= 128", symbols=frozenset({"s77"}), kind=Kind.OWN, at_most=128)
    axis = AxisOutcome(input="ids", axis=1, asked="seq", size="seq", kept=True, at_most=128, bounds=(bound,))
    given["result"] = report(sets=[SetResult(name="traced", sizes={"batch": 2})], axes=[axis])
    path = tmp_path / "report.json"
    assert main(["validate", "-m", "llama", "--json", str(path)]) == 0
    written = json.loads(path.read_text())
    assert written["ok"] is True
    assert written["axes"][0]["bounds"][0]["condition"] == "seq <= 128"
    assert written["axes"][0]["bounds"][0]["kind"] == "the model refuses other sizes"
    assert written["sets"][0]["name"] == "traced"
    assert "torch" in written["versions"]


USAGE = {
    "no model": (["validate"], "pass a model, either -m MODEL or path/file.py:function"),
    "an unknown dtype": (["validate", "-m", "llama", "--dtype", "int3"], "'int3' is not one of 'float32', 'float16'"),
    "an unknown exporter": (["validate", "-m", "llama", "--export", "x"], "'x' is not one of 'exportguard'"),
    "an unknown model": (["validate", "-m", "lama"], "did you mean llama"),
    "an unknown folder": (["validate", "-m", "./no_folder"], "there is no folder ./no_folder"),
    "an unknown task": (["validate", "-m", "llama", "-t", "poetry"], "'poetry' is not one of"),
    "an unknown opset": (["validate", "-m", "llama", "--opset", "12"], "opset must be between 18 and 25, got 12"),
    "an unknown device": (
        ["validate", "-m", "llama", "--device", "tpu9"],
        "device 'tpu9' cannot be used (",
    ),
    "a device without numbers": (["validate", "-m", "llama", "--device", "meta"], "device 'meta' cannot be used ("),
    "two models": (["validate", "a.py:f", "-m", "llama"], "pass a model, either -m MODEL or path/file.py:function"),
    "no processes": (["sweep", "-o", "s", "-j", "0"], "'--jobs': it must be at least 1, got 0"),
    "no time": (["sweep", "-o", "s", "--timeout", "nan"], "'--timeout': it must be at least 1, got nan"),
    "no memory": (["sweep", "-o", "s", "--memory", "-5"], "'--memory': it must be at least 1, got -5"),
    "none of those shipped": (["sweep", "-o", "s", "--shipped", "-k", "zzz"], "no model of any task has zzz"),
    "a tolerance that is none": (["compare", "a", "b", "--absolute", "nan"], "it must be at least 0, got nan"),
    "a negative tolerance": (["compare", "a", "b", "--relative", "-1"], "it must be at least 0, got -1"),
    "a device to compare on": (["compare", "a", "b", "--device", "tpu9"], "device 'tpu9' cannot be used ("),
    "no rows": (["profile", "a", "--rows", "0"], "'--rows': it must be at least 1, got 0"),
    "no runs": (["profile", "a", "--runs", "0"], "'--runs': it must be at least 1, got 0"),
    "an empty place": (["export", "-m", "llama", "-o", ""], "'--output': it is empty; pass a name, or ."),
    "an unknown runtime": (["export", "-m", "llama", "-o", "o", "--for", "x"], "'x' is not one of 'onnxruntime'"),
    "an unknown quantization": (["export", "-m", "llama", "-o", "o", "--quantize", "3"], "'3' is not one of 'int4'"),
    "a size that is none": (["export", "-m", "llama", "-o", "o", "--shard-size", "big"], "got 'big'; write 2GB"),
    "blocks that the opset has not": (
        ["export", "-m", "never loaded", "-o", "o", "--quantize", "int4-onnx", "--opset", "18"],
        "DequantizeLinear by blocks is of opset 21, and the file has 18",
    ),
    "ranges of nothing": (
        ["export", "-m", "never loaded", "-o", "o", "--quantize", "int8-static", "--no-verify"],
        "QDQ takes the ranges of values from examples",
    ),
    "a dtype of a function's model": (
        ["validate", "never_imported.py:make", "--dtype", "float16", "-q"],
        "never_imported.py:make makes the model itself, so dtype would change nothing; leave it out",
    ),
    "a task of a function's model": (
        ["validate", "never_imported.py:make", "-t", "fill-mask", "-q"],
        "never_imported.py:make makes the model itself, so task would change nothing; leave it out",
    ),
    "an unknown subcommand": (["convert"], "No such command 'convert'"),
}


@pytest.mark.parametrize(("arguments", "text"), USAGE.values(), ids=USAGE)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert text in said
    assert sum("rror: " in line for line in said.splitlines()) == 1


def test_a_report_that_cannot_be_written_exits_with_1(
    given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-m", "llama", "--json", str(tmp_path / "missing" / "report.json")]) == 1
    assert f"the folder {tmp_path / 'missing'} does not exist" in capsys.readouterr().err
    assert "name" not in given  # found out before the work


def test_a_page_that_cannot_be_written_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patches", "page", str(tmp_path / "missing" / "page.md")]) == 1
    assert f"the folder {tmp_path / 'missing'} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"PKno archive", b"", b"no array"])
def test_a_file_without_arrays_is_told(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inputs.npz").write_bytes(content)
    assert main(["compare", "a.onnx", "b.onnx", "--inputs", str(tmp_path / "inputs.npz")]) == 1
    assert "inputs.npz: it is no file of numpy.savez" in capsys.readouterr().err


def test_the_models_that_work_offline_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "qwen2_moe"]) == 0
    assert "text-generation" in capsys.readouterr().out


def test_no_model_of_that_name_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "no-such-model"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "no model has 'no-such-model' in its name" in said.err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model of three rows or more, two wide."""
    module = torch.nn.Linear(2, 2).eval()
    return exportguard.to_onnx(module, (torch.randn(3, 2),), dynamic_shapes=({0: "rows"},)).save(tmp_path / "m.onnx")


UNFITTING: dict[str, tuple[torch.Tensor, str]] = {
    "integers": (torch.ones(3, 2, dtype=torch.int64), "got int64[3, 2]"),
    "more digits": (torch.ones(3, 2, dtype=torch.float64), "got double[3, 2]"),
    "complex numbers": (torch.ones(3, 2, dtype=torch.complex64), "got complex64[3, 2]"),
    "an axis less": (torch.ones(2), "got float[2]"),
    "an axis more": (torch.ones(1, 3, 2), "got float[1, 3, 2]"),
    "another width": (torch.ones(3, 5), "got float[3, 5]"),
    "a number": (torch.tensor(1.0), "got float[]"),
}


@pytest.mark.parametrize(("value", "text"), UNFITTING.values(), ids=UNFITTING)
def test_inputs_that_a_file_does_not_take_are_told(
    value: torch.Tensor, text: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy.savez(tmp_path / "given.npz", input=value.numpy())
    assert main(["profile", str(file), "--inputs", str(tmp_path / "given.npz"), "--runs", "1"]) == 2
    assert capsys.readouterr().err == f"Error: input 'input' must be float[rows, 2], {text}\n"
    with pytest.raises(exportguard.InvalidArgumentError, match=re.escape(text)):
        quantize_file(file, QUANTIZATIONS["int8-static"], [{"input": value}])


def test_a_page_of_a_profile_that_cannot_be_written_is_found_out_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "never_read.onnx", "--html", str(tmp_path)]) == 1
    assert "it is a folder; pass the name of a file in it" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["profile", "never_read.onnx", "--html", str(tmp_path / "file" / "page.html")]) == 1
    assert f"the folder {tmp_path / 'file'} is a file; pass another name" in capsys.readouterr().err


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "exportguard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_the_module_runs_as_a_program_and_the_list_of_commands_imports_nothing_large() -> None:
    result = run("--help")
    assert all(name in result.stdout for name in build().list_commands(None))  # type: ignore[arg-type]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in result.stderr.splitlines()}
    assert not imported & {"torch", "numpy", "rich", "transformers", "onnxruntime", "onnx"}


def test_the_version_is_told_with_those_of_what_it_depends_on() -> None:
    assert run("--version").stdout.startswith(f"exportguard {exportguard.__version__} (torch {torch.__version__}")


def test_the_version_is_the_one_of_the_built_part() -> None:
    assert _core.version() == exportguard.__version__


def test_without_a_terminal_each_step_is_a_line_and_quiet_is_quiet(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["validate", "-m", "llama"])
    assert re.fullmatch(r"\[ +\d+\.\d s\] working\n", capsys.readouterr().err)
    main(["validate", "-m", "llama", "--quiet"])
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines() == ["ok llama: converted, not compared"]


@pytest.mark.parametrize(("kept", "is_told"), [("", False), ("; self.kept = x", True)], ids=["a GRU", "more than it"])
def test_what_torch_says_of_every_recurrent_layer_is_no_news(kept: str, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "class Reads(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.gru, self.kept = torch.nn.GRU(2, 2), torch.zeros(3, 2)\n"
        "    def forward(self, x):\n"
        f"        y, _ = self.gru(x){kept}\n"
        "        return y\n"
        "def make(): return Reads().eval(), (torch.randn(3, 2),)\n"
    )
    command = [sys.executable, "-m", "exportguard", "validate", f"{tmp_path}/model.py:make", "-q", "--no-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("assigned during export" in done.stderr) == is_told


def test_the_file_of_a_folder_is_called_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert file_name("../models/llama") == "llama.onnx"
    monkeypatch.chdir(tmp_path / "models" / "llama")
    assert file_name(".") == "llama.onnx"
    assert file_name("org/model") == "org--model.onnx"
