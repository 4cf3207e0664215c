"""A sweep over many models: one process each, bounds, results that are kept, and tables."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console

from exportguard.command_line import main
from exportguard.commands import sweep as sweep_command
from exportguard.errors import FileError, InvalidArgumentError
from exportguard.models import architectures
from exportguard.sweep import SweepCase, SweepOptions, SweepResult, kept_results, shipped_cases, sweep, sweep_cases
from exportguard.sweep import run as sweeping
from exportguard.sweep.ci import junit
from exportguard.sweep.tables import PageOptions, markdown, page, summary, terminal_table

CASE = SweepCase(model="vit", task="image-classification")


class Script:
    """Stands for a fork: a process that runs a script."""

    def __init__(self, script: str, output: Path) -> None:
        with output.open("w") as file:
            self._process = subprocess.Popen([sys.executable, "-c", script], stdout=file, stderr=file)
        self.pid = self._process.pid

    def poll(self, timeout_s: float = 0.0) -> int | None:
        time.sleep(timeout_s)
        return self._process.poll()

    def kill(self) -> int:
        self._process.kill()
        return self._process.wait()


def result_of(script: str, options: SweepOptions, monkeypatch: pytest.MonkeyPatch) -> SweepResult:
    """The result of a case whose process runs `script` instead; `{report}` in it is where the report goes."""

    def start(arguments: list[str], output: Path) -> Script:
        report = arguments[arguments.index("--json") + 1]
        return Script(script.replace("{report}", report), output)

    monkeypatch.setattr(sweeping, "_started", start)
    return sweeping.run_case(CASE, options)


def report_script(**fields: Any) -> str:
    report = {"ok": True, "failure": "", "seconds": {"eager": 0.1}, "node_count": 7, "axes": [], "sets": [], **fields}
    return f"import json; json.dump({report!r}, open('{{report}}', 'w'))"


def fixed_axis() -> dict[str, Any]:
    return {"input": "x", "axis": 0, "kept": False, "reason": "by m.py:3"}


SCRIPTS = {
    "ok": (report_script(), "ok", ""),
    "a wrong set": (
        report_script(ok=False, sets=[{"name": "empty past", "agrees": False, "error": ""}]),
        "wrong",
        "empty past: differs",
    ),
    "a fixed axis": (report_script(ok=False, axes=[fixed_axis()]), "wrong", "x axis 0 fixed by m.py:3"),
    "a failure": (report_script(ok=False, failure="LoweringError: foo"), "failed", "LoweringError: foo"),
    "a failure before the eager run": (
        report_script(ok=False, failure="ImportError: timm", seconds={}),
        "cannot run eagerly",
        "ImportError: timm",
    ),
    "a model that cannot be built": ("print('no class'); exit(2)", "cannot run eagerly", "no class"),
    "a crash": ("import os; print('oh'); os._exit(139)", "crashed", "oh"),
}


@pytest.mark.parametrize(("script", "outcome", "reason"), SCRIPTS.values(), ids=SCRIPTS)
def test_each_end_of_a_process_is_an_outcome(
    script: str, outcome: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = result_of(script, SweepOptions(folder=tmp_path), monkeypatch)
    assert (result.outcome, result.reason) == (outcome, reason)


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SweepOptions(folder=tmp_path, timeout_s=0.3)
    result = result_of("import time; time.sleep(60)", options, monkeypatch)
    assert result.outcome == "timed out"


def test_a_process_that_needs_too_much_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SweepOptions(folder=tmp_path, memory_mib=60)
    result = result_of("import time; x = bytearray(200 << 20); time.sleep(60)", options, monkeypatch)
    assert (result.outcome, result.reason) == ("out of memory", "needed more than 60 MiB")


BESIDE = {"runner": "evaluator", "outcome": "differs", "reason": "traced: logits off by 1"}


def test_what_a_runner_beside_finds_is_no_part_of_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of(report_script(beside=BESIDE), SweepOptions(folder=tmp_path), monkeypatch)
    assert (result.outcome, result.beside, result.beside_reason) == ("ok", "differs", "traced: logits off by 1")


@pytest.mark.parametrize(
    ("end", "beside"), [("import os; os._exit(139)", "crashed"), ("import time; time.sleep(60)", "timed out")]
)
def test_a_runner_beside_that_takes_the_process_down_leaves_the_outcome(
    end: str, beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SweepOptions(folder=tmp_path, timeout_s=1.5)
    settled = report_script(beside={**BESIDE, "outcome": "not finished"})
    result = result_of(f"{settled}; {end}", options, monkeypatch)
    assert (result.outcome, result.beside) == ("ok", beside)


def test_a_report_that_was_cut_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; open('{report}', 'w').write('{'); os._exit(139)"
    assert result_of(script, SweepOptions(folder=tmp_path), monkeypatch).outcome == "crashed"


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[SweepCase] = []

    def run_case(case: SweepCase, options: SweepOptions) -> SweepResult:
        ran.append(case)
        return SweepResult(model=case.model, task=case.task, outcome="ok")

    monkeypatch.setattr(sweeping, "run_case", run_case)
    cases = [CASE, SweepCase(model="bit", task="image-classification")]
    options = SweepOptions(folder=tmp_path / "new")
    with ThreadPoolExecutor(1) as executor:
        list(sweep(cases[:1], options, executor))
        results = list(sweep(cases, options, executor))
    assert ran == cases
    assert [result.model for result in results] == ["vit", "bit"]


def test_the_cases_are_the_model_types_of_the_tasks() -> None:
    cases = sweep_cases(["text-generation"], ["qwen"])
    assert SweepCase(model="qwen3", task="text-generation") in cases
    assert all("qwen" in case.model for case in cases)


def test_the_shipped_architectures_are_cases_too() -> None:
    assert {case.model for case in shipped_cases()} == set(architectures())


WRONG = {"an unknown task": (["x"], [], "unknown task 'x'"), "no model": ([], ["zzz"], "no model of any task has zzz")}


@pytest.mark.parametrize(("tasks", "patterns", "text"), WRONG.values(), ids=WRONG)
def test_cases_that_do_not_exist_are_refused(tasks: list[str], patterns: list[str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        sweep_cases(tasks, patterns)


RESULTS = [
    SweepResult(model="a", task="t", outcome="ok", nodes=12),
    SweepResult(model="b", task="t", outcome="wrong", reason="x < y"),
    SweepResult(model="c", task="t", outcome="cannot run eagerly"),
]


def test_what_does_not_run_eagerly_does_not_count() -> None:
    assert summary(RESULTS).startswith("1 of 2 models that run are right (50.0 %)")


def test_what_is_wrong_stands_first_in_the_table() -> None:
    console = Console(width=120, record=True)
    console.print(terminal_table(RESULTS))
    text = console.export_text()
    assert text.index("wrong") < text.index("ok")


def test_the_page_escapes_what_it_shows() -> None:
    assert "x &lt; y" in page(RESULTS)
    assert '<td class="ok">ok' in page(RESULTS)


def test_the_page_stands_alone_and_folds_long_reasons() -> None:
    long = SweepResult(model="m", task="t", outcome="wrong", reason="<b>" + "x" * 200)
    text = page([long])
    assert "<details><summary>&lt;b&gt;xxx" in text
    assert "src=" not in text
    assert f"torch {torch.__version__}" in text


def rows(*outcomes: str) -> list[SweepResult]:
    return [SweepResult(model=f"m{n}", task="t", outcome=one, reason="why\x00") for n, one in enumerate(outcomes)]  # type: ignore[arg-type]


def test_junit_has_a_case_for_each_model_and_its_outcome() -> None:
    root = ElementTree.fromstring(junit(rows("ok", "wrong", "cannot run eagerly")))
    assert [(len(case), [entry.tag for entry in case]) for case in root.iter("testcase")] == [
        (0, []),
        (1, ["failure"]),
        (1, ["skipped"]),
    ]
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("3", "1", "1")


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[SweepResult]:
    """What the next sweep finds, in the place of running it."""
    results: list[SweepResult] = []
    monkeypatch.setattr(sweep_command, "sweep", lambda cases, settings, executor: iter(results))
    return results


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [("ok", "ok", 0), ("ok", "failed", 1), ("wrong", "failed", 0), ("ok", "cannot run eagerly", 1)],
)
def test_a_sweep_fails_for_what_was_right_before_alone(
    before: str, now: str, code: int, swept: list[SweepResult], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    baseline, folder = tmp_path / "baseline.json", tmp_path / "out"
    folder.mkdir()
    baseline.write_text(json.dumps([dataclasses.asdict(one) for one in rows(before)]))
    swept += rows(now)
    arguments = ["sweep", "-o", str(folder), "--shipped", "-q", "--baseline", str(baseline), "--junit"]
    assert main([*arguments, str(tmp_path / "junit.xml")]) == code
    assert ("::error title=t m0::" in capsys.readouterr().out) == bool(code)
    assert (tmp_path / "junit.xml").read_text().startswith("<?xml")


def test_a_baseline_that_is_none_is_found_out_before_the_sweep(tmp_path: Path) -> None:
    assert main(["sweep", "-o", str(tmp_path / "out"), "--shipped", "--baseline", str(tmp_path / "no.json")]) == 2
    assert list(tmp_path.iterdir()) == []


def keep(folder: Path, *results: SweepResult) -> Path:
    folder.mkdir(parents=True)
    for one in results:
        case = SweepCase(model=one.model, task=one.task)
        (folder / case.file_name).write_text(json.dumps(dataclasses.asdict(one)))
    return folder


def test_a_page_has_the_figures_of_each_task_and_every_miss(tmp_path: Path) -> None:
    folder = keep(tmp_path / "t", *RESULTS, SweepResult(model="d", task="u", outcome="failed", reason="by m.py:3"))
    assert main(["sweep-report", str(folder.parent), "-o", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    assert "| t | - | 3 | 2 | 1 | 50.0 % |" in text
    assert "| t | b | wrong | x &lt; y |" in text
    assert "| u | d | failed | by m.py:3 |" in text
    assert "| t | c | cannot run eagerly |  |" in text.partition("## Not run")[2]


def test_a_page_names_the_models_that_were_given_no_picture() -> None:
    inputs = {"a": "input_ids, pixel_values", "b": "flattened_patches", "c": "input_ids, attention_mask"}
    results = [
        SweepResult(model=model, task="image-text-to-text", outcome="ok", inputs=names)
        for model, names in inputs.items()
    ]
    text = markdown(results, PageOptions(made_by="a test", versions={}, known={}))
    assert "Given a text without a picture, whose form is one of their own: c." in text


def test_a_page_has_what_the_evaluator_made_of_the_same(tmp_path: Path) -> None:
    results = [
        SweepResult(model="a", task="t", outcome="ok", beside="agrees"),
        SweepResult(model="b", task="t", outcome="wrong", beside="differs", beside_reason="x | y"),
        SweepResult(model="c", task="t", outcome="failed"),
    ]
    folder = keep(tmp_path / "t", *results)
    assert main(["sweep-report", str(folder.parent), "-o", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    assert "| t | 2 | 1 | 50.0 % |" in text
    assert "| t | b | differs | x \\| y |" in text
    assert "evaluator" not in markdown(RESULTS, PageOptions(made_by="a test", versions={}, known={}))


def test_a_model_that_patches_break_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = [SweepResult(model=name, task="t", outcome="ok") for name in "ab"]
    without, patched = keep(tmp_path / "without", *right), keep(tmp_path / "with", *RESULTS)
    assert main(["sweep-compare", str(patched), "--without", str(without)]) == 1
    assert "1 models are right without patches alone" in capsys.readouterr().out
    assert main(["sweep-compare", str(without), "--without", str(without)]) == 0


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="holds no results"):
        kept_results(tmp_path)


def test_one_model_is_swept_from_end_to_end(tmp_path: Path) -> None:
    options = SweepOptions(folder=tmp_path, arguments=("--beside", "evaluator"))
    with ThreadPoolExecutor(1) as executor:
        (result,) = sweep([CASE], options, executor)
    assert result.beside == "agrees"
    assert (result.outcome, result.reason) == ("ok", "")
    assert result.comparisons == 3
    assert [path.name for path in tmp_path.iterdir()] == [CASE.file_name]


def test_a_page_says_of_which_commit_its_results_are() -> None:
    def text(*commits: str) -> str:
        results = [SweepResult(model=f"m{i}", task="t", outcome="ok", commit=one) for i, one in enumerate(commits)]
        return markdown(results, PageOptions(made_by="a test", versions={}, known={}))

    assert "All are of commit abc." in text("abc", "abc")
    assert "They are of several commits: abc (2), def (1), unknown (1)." in text("abc", "abc", "def", "")
    assert "commit" not in text("", "")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    options = SweepOptions(folder=tmp_path / "file" / "results")
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(FileError, match=r"cannot make the folder .*results: Not a dir"),
    ):
        list(sweep([SweepCase(model="albert", task="fill-mask")], options, executor))
