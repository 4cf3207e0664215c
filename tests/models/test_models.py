"""The main proof: models of transformers become ONNX files that are right on shapes other than the traced ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exportguard import _core
from exportguard.models import BuildOptions, architectures
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_model

# Untrained, small, float32; each with the inputs of its task, caches included. Those with a sliding window are compared
# on a past beyond it as well.
DECODERS = ("llama", "qwen3", "phi3", "mistral", "gemma3", "mixtral", "gpt2", "opt")
ENCODER_DECODERS = ("t5", "bart", "hf-tiny-model-private/tiny-random-PLBartForConditionalGeneration", "whisper")
ENCODERS = ("bert", "vit", "clip")


def complaints(report: ValidationReport) -> list[str]:
    """What is wrong, in words; empty for a model that is right."""
    fixed = [str(axis) for axis in report.axes if not axis.kept]
    wrong = [
        f"{one.name}: {one.error or [(output.name, output.problem, output.max_absolute) for output in one.outputs]}"
        for one in report.sets
        if not one.agrees
    ]
    return [text for text in (report.failure, *fixed, *wrong) if text]


def test_every_shipped_architecture_is_tried() -> None:
    assert {*DECODERS, *ENCODER_DECODERS, *ENCODERS} == set(architectures())


@pytest.mark.parametrize("name", [*DECODERS, *ENCODER_DECODERS])
def test_a_model_with_a_cache_is_right_on_every_set_of_inputs(name: str) -> None:
    report = validate_model(name)
    assert complaints(report) == []
    assert [one.name for one in report.sets][:4] == ["traced", "other sizes", "batch 1, one token", "empty past"]
    asked = {axis.asked for axis in report.axes}
    assert {"batch", "seq", "past"} <= asked


@pytest.mark.parametrize("name", ENCODERS)
def test_a_model_without_a_cache_is_right_on_every_set_of_inputs(name: str) -> None:
    report = validate_model(name)
    assert complaints(report) == []
    assert len(report.sets) == 3
    assert report.axes


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "bert", "vit"])
def test_a_float16_model_is_right_on_every_set_of_inputs(name: str) -> None:
    report = validate_model(name, ValidateOptions(build=BuildOptions(dtype=torch.float16)))
    assert complaints(report) == []
    assert report.dtype == "float16"


@pytest.mark.parametrize("name", ["llama", "bart", "bert"])
def test_a_bfloat16_model_is_converted(name: str, tmp_path: Path) -> None:
    """onnxruntime has no bfloat16 kernels on the CPU, so the checker has to do."""
    report = validate_model(name, ValidateOptions(build=BuildOptions(dtype=torch.bfloat16), run=False, folder=tmp_path))
    assert complaints(report) == []
    _core.check_file(report.file, full=True)


@pytest.mark.parametrize("opset", [18, 21, 23])
def test_an_older_opset_is_right_as_well(opset: int) -> None:
    assert complaints(validate_model("llama", ValidateOptions(opset=opset))) == []
