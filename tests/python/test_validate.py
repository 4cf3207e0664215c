"""The validation: what it compares, what it reports, and what it makes of failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import transformers

from exportguard import _core
from exportguard.errors import FileError, InvalidArgumentError, LoweringError
from exportguard.inputs import Leaf
from exportguard.models import BuildOptions, ModelCase, tasks
from exportguard.models.input_sets import InputSet
from exportguard.models.natural_inputs.search import draws_numbers
from exportguard.validation import exporters
from exportguard.validation import validate as validation
from exportguard.validation.eager_outputs import joined_rows
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_model, validate_module


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ValidationReport:
    """A model that is right, and kept."""
    return validate_model("vit", ValidateOptions(folder=tmp_path_factory.mktemp("onnx") / "new"))


def test_a_model_that_is_right_is_compared_on_every_set_of_inputs(report: ValidationReport) -> None:
    assert report.ok
    assert [one.name for one in report.sets] == ["traced", "other sizes", "batch 1"]
    assert all(output.max_absolute < 1e-4 for one in report.sets for output in one.outputs)


def test_the_axes_are_reported(report: ValidationReport) -> None:
    assert [str(axis) for axis in report.axes] == ["pixel_values axis 0 (batch): kept as batch"]


def test_the_file_is_kept_where_it_was_asked_for(report: ValidationReport) -> None:
    onnx.checker.check_model(report.file)


def test_every_step_is_timed(report: ValidationReport) -> None:
    assert {"build", "eager", "export", "convert", "load", "run traced"} <= set(report.seconds)


def test_the_report_is_json(report: ValidationReport) -> None:
    written = json.loads(json.dumps(report.as_dict()))
    assert written["ok"] is True
    assert written["sets"][0]["outputs"][0]["agrees"] is True
    assert written["versions"]["torch"] == torch.__version__


def test_the_steps_are_told_while_they_run() -> None:
    steps: list[str] = []
    validate_model("vit", ValidateOptions(run=False), steps.append)
    assert steps == [
        "building the model",
        "running vit eagerly on 0 sets of inputs",
        "exporting with torch.export",
        "converting with exportguard",
    ]


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = validation.OrtSession.run
    monkeypatch.setattr(validation.OrtSession, "run", lambda self, feeds: [value + 1 for value in run(self, feeds)])
    report = validate_model("vit")
    assert not report.ok
    assert [one.agrees for one in report.sets] == [False, False, False]
    assert report.sets[0].outputs[0].share_over == 1.0


def test_a_failure_of_the_conversion_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LoweringError("aten.foo.default has no lowering")

    monkeypatch.setattr(exporters, "convert", fail)
    report = validate_model("vit")
    assert report.failure == "LoweringError: aten.foo.default has no lowering"
    assert "Traceback" in report.details
    assert not report.ok


def test_a_model_in_bfloat16_is_compared_in_onnxruntime() -> None:
    report = validate_model("bert", ValidateOptions(build=BuildOptions(dtype=torch.bfloat16)))
    assert report.failure == ""
    assert report.ok


def test_a_model_that_onnxruntime_cannot_load_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(model: object, target: str) -> int:
        return 0

    monkeypatch.setattr(_core, "widen_bfloat16", keep)
    report = validate_model("bert", ValidateOptions(build=BuildOptions(dtype=torch.bfloat16)))
    assert report.failure.startswith("ExportGuardError: onnxruntime has no kernel on cpu for a node of the model")


@pytest.mark.parametrize("rewrite", [True, False])
def test_what_stops_the_export_at_data_is_rewritten(rewrite: bool) -> None:
    half = BuildOptions(dtype=torch.float16)  # in which Bart's encoder looks for infinities
    report = validate_model("bart", ValidateOptions(build=half, rewrite=rewrite))
    assert report.ok is rewrite
    assert [("torch.isfinite" in step) for step in report.rewritten] == ([True] if rewrite else [])
    assert ("ExportError: torch.export stopped at" in report.failure) is not rewrite


def test_a_folder_that_cannot_be_made_is_an_error_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot make the folder .*/file/new: Not a directory; pass another one"):
        validate_model("vit", ValidateOptions(folder=tmp_path / "file" / "new"))


def test_an_unknown_model_is_an_error_of_the_caller() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown model 'lama'"):
        validate_model("lama")


def test_the_official_exporter_is_validated_in_the_same_way(tmp_path: Path) -> None:
    report = validate_model("vit", ValidateOptions(exporter="onnx-dynamo", folder=tmp_path, opset=20))
    assert (report.failure, report.ok, report.exporter) == ("", True, "onnx-dynamo")


class Squeezes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(1)


class NeedsTwo(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 1:
            raise ValueError("a single token")
        return x


class Keeps(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Case:
    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def inputs(self, sizes: Any) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(sizes["batch"], sizes["seq"])}


LONGER = InputSet(name="longer", sizes={"batch": 1, "seq": 3})
SINGLE = InputSet(name="single", sizes={"batch": 1, "seq": 1}, instead=LONGER)
TRACED = InputSet(name="traced", sizes={"batch": 2, "seq": 3})


@pytest.mark.parametrize(
    ("model", "asked"),
    [(Squeezes(), "longer"), (NeedsTwo(), "longer"), (Keeps(), "single")],
    ids=["of another rank", "refused", "taken"],
)
def test_a_set_that_the_original_has_no_comparable_result_for_gives_way(model: torch.nn.Module, asked: str) -> None:
    case: Any = Case(model)
    assert [one.name for one, _ in validation._eager_results(case, [TRACED, SINGLE])] == ["traced", asked]


def test_a_set_with_nothing_to_take_instead_is_asked_all_the_same() -> None:
    case: Any = Case(NeedsTwo())
    with pytest.raises(ValueError, match="a single token"):
        validation._eager_results(case, [TRACED, InputSet(name="single", sizes={"batch": 1, "seq": 1})])


def test_rows_that_come_in_a_list_are_compared_with_the_one_tensor_of_the_program() -> None:
    one, other = torch.ones(2, 4), torch.zeros(3, 4)
    leaves = [Leaf("logits", one), Leaf("features.0", one), Leaf("features.1", other)]
    joined = joined_rows(leaves)
    assert [leaf.name for leaf in joined] == ["logits", "features"]
    assert torch.equal(joined[1].value, torch.cat([one, other]))


def test_lists_of_other_things_stay_lists() -> None:
    """Of the states of layers those that nobody asked for are None; others differ in width, or are numbers."""
    lists = [[None, torch.ones(2, 4)], [torch.ones(2, 4), torch.ones(2, 3)], [torch.tensor(1.0), torch.tensor(2.0)]]
    leaves = [
        Leaf(f"{name}.{place}", value)
        for name, values in zip("abc", lists, strict=True)
        for place, value in enumerate(values)
    ]
    assert joined_rows(leaves) == leaves


class Saturated(torch.nn.Module):
    """Its outputs are NaN whatever it is given."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.log(-1.0 - input_ids.float())


def test_outputs_that_are_all_nan_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks()["text-generation"]
    case = ModelCase(name="saturated", model=Saturated().eval(), task=task)
    monkeypatch.setattr(
        ModelCase, "inputs", lambda self, sizes: {"input_ids": torch.ones(sizes["batch"], sizes["seq"])}
    )
    monkeypatch.setattr(validation, "build_model", lambda name, options: case)
    monkeypatch.setattr(validation, "input_sets", lambda case: [InputSet(name="traced", sizes=task.sizes)])
    report = validate_model("saturated")
    assert not report.failure
    assert not report.ok
    assert "no comparison could tell right from wrong" in report.sets[0].error


class Drawing(torch.nn.Module):
    """Adds numbers of its own to what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Counting(torch.nn.Module):
    """Its calls are not alike either, and no random number is to blame."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


class Remembering(torch.nn.Module):
    """Attends to what is near until it is given a short text, and to all from then on.

    It stands for one of an installed package, as BigBird is: one of the user's own is refused.
    """

    __module__ = transformers.__name__

    def __init__(self) -> None:
        super().__init__()
        self.is_near = True
        self.near, self.all = torch.nn.Identity(), torch.nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] < 4 and self.is_near:
            self.is_near, self.near = False, self.all
        return self.near(x) + torch.arange(x.shape[1])


class RememberingCase(ModelCase):
    """One that the task gives signals of some length."""

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        return {"x": torch.arange(float(sizes["batch"] * sizes["seq"])).view(sizes["batch"], sizes["seq"])}


def test_a_model_that_changes_itself_is_compared_as_it_was_exported(tmp_path: Path) -> None:
    task = replace(tasks()["feature-extraction"], sizes={"batch": 2, "seq": 9})
    case = RememberingCase(name="remembering", model=Remembering().eval(), task=task)
    report = validation.validate_case(case, tmp_path / "model.onnx", ValidateOptions())
    assert [one.sizes["seq"] for one in report.sets] == [9, 11, 1]
    assert report.ok, report.sets
    assert case.model.is_near


def test_a_model_that_draws_its_numbers_is_told_apart_from_a_wrong_file() -> None:
    report = validate_module(Drawing().eval(), (torch.randn(3, 4),), ({0: "batch"},))
    assert not report.failure
    assert all("it is called on these inputs" in compared.error for compared in report.sets)


def test_a_model_that_changes_draws_no_numbers() -> None:
    call = {"x": torch.randn(3, 4)}
    assert draws_numbers(Drawing(), call)
    assert not draws_numbers(Counting(), call)
    assert not draws_numbers(torch.nn.Identity(), {"input": call["x"]})
