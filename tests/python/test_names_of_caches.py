"""Caches of every kind have names of one scheme: `past_key_values.…` in, `present.…` out, in files and in reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case

#: What the first layer of each kind keeps.
KEPT = {
    "llama": ["0.key", "0.value"],
    "t5": ["self.0.key", "cross.0.value"],
    "mamba": ["0.conv_states.0", "0.recurrent_states.0"],
}
TASKS = {"llama": "text-generation", "t5": "text2text-generation", "mamba": "text-generation"}


def case_of(model: str) -> ModelCase:
    return build_model(model, BuildOptions(task=TASKS[model]))


def validated(case: ModelCase, folder: Path) -> ValidationReport:
    return validate_case(case, folder / "model.onnx", ValidateOptions(folder=folder))


def of_caches(names: Sequence[str]) -> set[str]:
    return {name for name in names if "." in name}


@pytest.mark.parametrize("model", KEPT)
def test_a_cache_has_the_same_names_in_the_file_and_in_the_report(model: str, tmp_path: Path) -> None:
    report = validated(case_of(model), tmp_path)
    assert report.failure == ""
    for kept in KEPT[model]:
        assert f"past_key_values.{kept}" in report.inputs
        assert f"present.{kept}" in report.outputs
    assert all(name.startswith("past_key_values.") for name in of_caches(report.inputs))
    assert all(name.startswith("present.") for name in of_caches(report.outputs))
    assert {axis.input for axis in report.axes} <= set(report.inputs)
    assert {one.name for one in report.sets[0].outputs} <= set(report.outputs)
