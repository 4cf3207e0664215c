"""Folders of half precision whose inputs and outputs are float32 where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from exportguard.command_line import main
from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions
from exportguard.onnx_model import load
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.digests import digests_of
from exportguard.ship.outcome import ExportedFolder, Runtime
from exportguard.ship.recorded import EXAMPLES, validate_export
from exportguard.ship.staging import REPORT
from exportguard.validation.validate import ValidateOptions, validate_model


def exported(name: str, folder: Path, io: Sequence[str] = (), runtime: Runtime = "onnxruntime") -> ExportedFolder:
    build = BuildOptions(dtype=torch.float16, float32_io=io)
    return export_model(name, folder, FolderOptions(build=build, runtime=runtime))


def dtypes(file: Path) -> dict[str, str]:
    model = load(file)
    return {value.name: value.dtype for value in (*model.inputs, *model.outputs)}


def test_a_picture_goes_in_and_logits_come_out_as_float32_and_what_is_computed_is_the_same(tmp_path: Path) -> None:
    exported("vit", tmp_path / "narrow")
    result = exported("vit", tmp_path / "wide", ["pixel_values", "logits"])
    assert result.float32_io == ["pixel_values", "logits"]
    assert all(one.agrees for one in result.comparisons)
    assert dtypes(tmp_path / "wide/model.onnx") == {"pixel_values": "f32", "logits": "f32"}

    narrow, wide = (OrtSession(tmp_path / name / "model.onnx") for name in ("narrow", "wide"))
    picture = torch.load(tmp_path / "narrow" / EXAMPLES, weights_only=True)[0]["inputs"]["pixel_values"]
    (expected,), (got,) = narrow.run({"pixel_values": picture}), wide.run({"pixel_values": picture.float()})
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected.float(), rtol=2**-10, atol=2**-12)  # its last rounding may be left out


def test_a_cache_is_float32_where_it_is_taken_and_where_it_is_returned(tmp_path: Path) -> None:
    result = exported("llama", tmp_path / "out", ["present.*"], runtime="genai")
    found = dtypes(tmp_path / "out/model.onnx")
    assert {name: dtype for name, dtype in found.items() if dtype == "f16"} == {"logits": "f16"}
    assert found["past_key_values.0.key"] == found["present.0.key"] == "f32"
    assert all(one.agrees for one in result.comparisons)
    assert result.runtime_agrees is True


def test_what_one_file_hands_to_the_next_has_one_dtype(tmp_path: Path) -> None:
    result = exported("bart", tmp_path / "out", ["encoder_hidden_states"])
    assert dtypes(tmp_path / "out/encoder_model.onnx")["last_hidden_state"] == "f32"
    assert dtypes(tmp_path / "out/decoder_model_merged.onnx")["encoder_hidden_states"] == "f32"
    assert all(one.agrees for one in result.comparisons)


def test_transformers_js_is_given_float32_throughout(tmp_path: Path) -> None:
    result = exported("llama", tmp_path / "out", runtime="transformers.js")
    assert "f16" not in dtypes(tmp_path / "out/onnx/model.onnx").values()
    assert "logits" in result.float32_io


def test_what_is_recorded_is_compared_as_exactly_as_it_was_computed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    exported("vit", folder, ["*"])
    assert validate_export(folder).ok
    calls = torch.load(folder / EXAMPLES, weights_only=True)
    for call in calls:
        call["outputs"]["logits"] *= 1 + 2**-9  # another order of sums in float16
    _record(folder, calls)
    assert validate_export(folder).ok
    for call in calls:
        call["outputs"]["logits"] += 1
    _record(folder, calls)
    found = validate_export(folder)
    assert not found.ok
    assert not found.failure  # the numbers, and not the file


def _record(folder: Path, calls: list[dict[str, Any]]) -> None:
    """Other calls in the place of those that were recorded, as if they had been."""
    torch.save(calls, folder / EXAMPLES)
    report = json.loads((folder / REPORT).read_text())
    report["sha256"] = digests_of(folder)
    (folder / REPORT).write_text(json.dumps(report))


WRONG = {
    "a name of nothing": (
        ["--dtype", "float16", "--float32-io", "pixels"],
        "no input or output of half precision is called 'pixels'; there are pixel_values, logits (2 in all)",
    ),
    "few bits of bfloat16": (
        ["--dtype", "bfloat16", "--quantize", "int4"],
        "weights of bfloat16 are not quantized",
    ),
    "a model that is wide": (
        ["--float32-io", "logits"],
        "float32_io is for models of half precision, and dtype is float32; leave it out",
    ),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: Sequence[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "-m", "vit", "-o", str(tmp_path / "out"), *arguments]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_products_is_not_said_to_be_quantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.ReLU().eval(), (torch.randn(4),)\n"
    )
    words = ["export", "-m", f"{tmp_path / 'own.py'}:make", "-o", str(tmp_path / "out")]
    assert main([*words, "--quantize", "int8"]) == 2
    assert "make has no products with weights; leave the quantization out" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_examples_without_a_number_are_told_as_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 4).eval(), (torch.randn(4),)\n"
    )
    torch.save([{"input": torch.full((4,), torch.nan)}], tmp_path / "calls.pt")
    words = ["export", "-m", f"{tmp_path / 'own.py'}:make", "-o", str(tmp_path / "out"), "--quantize", "int8-static"]
    assert main([*words, "--calibration", str(tmp_path / "calls.pt")]) == 2
    assert "values that are numbers in all examples" in capsys.readouterr().err.splitlines()[-1]


def test_bfloat16_is_exported_with_what_is_float32(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", "-m", "vit", "-o", str(out), "-q", "--dtype", "bfloat16", "--float32-io", "*"]) == 0
    assert set(dtypes(out / "model.onnx").values()) == {"f32"}


def test_a_validation_feeds_float32_and_judges_by_float16() -> None:
    build = BuildOptions(dtype=torch.float16, float32_io=["logits"])
    report = validate_model("vit", ValidateOptions(build=build))
    assert report.ok
    assert report.float32_io == ["logits"]
    with pytest.raises(InvalidArgumentError, match="beside compares what the model itself takes and returns"):
        ValidateOptions(build=build, beside="evaluator")
