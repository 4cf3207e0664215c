"""A second runner on the inputs of the first: what it finds, and that it never changes the verdict on the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from exportguard.command_line import main
from exportguard.runners.evaluator import EvaluatorSession
from exportguard.validation import validate as validation
from exportguard.validation.beside import Beside, Ran, run_beside
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_module

ONE, TWO = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0])


class Always:
    """A session that returns one tensor, or raises if it has none."""

    output_names = ("y",)

    def __init__(self, value: torch.Tensor | None) -> None:
        self._value = value

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        if self._value is None:
            raise RuntimeError("no kernel")
        return [self._value]


def beside(first: torch.Tensor | None, second: torch.Tensor | None, original: torch.Tensor = ONE) -> Beside | None:
    ran = Ran(name="traced", feeds={}, expected=[original], outputs=None if first is None else [first])
    return run_beside("evaluator", Always(second), [ran])


FOUND = {
    "the same": (ONE, ONE, "agrees", ""),
    "the second is wrong": (ONE, TWO, "differs", "the first agrees with the original, it differs from the original"),
    "the first is wrong": (TWO, ONE, "differs", "the first differs from the original, it agrees with the original"),
    "the second raises": (ONE, None, "refuses", "traced: RuntimeError: no kernel"),
    "the first raises": (None, ONE, "runs alone", "traced: it agrees with the original"),
}


@pytest.mark.parametrize(("first", "second", "outcome", "reason"), FOUND.values(), ids=FOUND)
def test_what_two_runners_make_of_a_set(
    first: torch.Tensor | None, second: torch.Tensor | None, outcome: str, reason: str
) -> None:
    found = beside(first, second)
    assert found is not None
    assert found.outcome == outcome
    assert found.reason.endswith(reason)


def test_a_set_that_both_raise_for_tells_nothing() -> None:
    assert beside(None, None) is None


def test_the_worst_set_is_what_all_come_to() -> None:
    runs = [Ran(name=name, feeds={}, expected=[ONE], outputs=[got]) for name, got in (("a", ONE), ("b", TWO))]
    found = run_beside("evaluator", Always(ONE), runs)
    assert found is not None
    assert (found.outcome, found.sets) == ("differs", 2)
    assert found.reason.startswith("b: y off by 1.0e+00, 50.0% of the values over")


def validated() -> ValidationReport:
    options = ValidateOptions(beside="evaluator")
    return validate_module(torch.nn.Linear(4, 2).eval(), (torch.randn(3, 4),), ({0: "batch"},), options)


def test_a_module_is_run_by_both() -> None:
    report = validated()
    assert report.beside is not None
    assert (report.beside.outcome, report.beside.sets) == ("agrees", len(report.sets))
    assert report.ok


def test_an_evaluator_that_fails_makes_no_model_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: EvaluatorSession, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(EvaluatorSession, "run", raises)
    report = validated()
    assert report.ok
    assert report.beside is not None
    assert report.beside.outcome == "refuses"


def test_an_evaluator_that_cannot_load_the_file_makes_no_model_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(file: Path, device: str = "cpu") -> EvaluatorSession:
        raise RuntimeError("no operator")

    monkeypatch.setattr(validation, "EvaluatorSession", raises)
    report = validated()
    assert report.ok
    assert report.beside == Beside(runner="evaluator", outcome="refuses", reason="RuntimeError: no operator")


def test_the_report_is_there_before_the_second_runner_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    seen: list[bool] = []
    monkeypatch.setattr(validation, "run_beside", lambda *given: seen.append('"not finished"' in file.read_text()))
    assert main(["validate", "-q", "-m", "vit", "--json", str(file), "--beside", "evaluator"]) == 0
    assert seen == [True]


WRONG = {
    "the runner itself": (["-m", "vit", "--beside", "onnxruntime"], "is the runner itself"),
    "what export wrote": (["{export}", "--beside", "evaluator"], "leave --beside out"),
    "other options of what export wrote": (
        ["{export}", "--dtype", "float16", "--no-run"],
        "leave --run/--no-run, --dtype",
    ),
}


@pytest.mark.parametrize(("arguments", "text"), WRONG.values(), ids=WRONG)
def test_a_second_runner_that_cannot_be_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("export_report.json", "examples.pt"):
        (tmp_path / name).touch()
    assert main(["validate", *(argument.format(export=tmp_path) for argument in arguments)]) == 2
    assert text in capsys.readouterr().err


def test_a_sweep_in_bfloat16_has_no_second_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", "-o", str(tmp_path), "--shipped", "--dtype", "bfloat16", "--beside", "evaluator"]
    assert main(arguments) == 2
    assert "by the evaluator alone" in capsys.readouterr().err
