"""What a nightly run asks of a sweep: results that its pages show, and whether anything right is so no longer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ..errors import InvalidArgumentError
from .run import SweepResult

_NOT_RUN = "cannot run eagerly"


def junit(results: Sequence[SweepResult]) -> str:
    """The results in the form of JUnit: a suite for each task; what does not run eagerly is skipped.

    >>> junit([SweepResult(model="bert", task="fill-mask", outcome="ok", seconds=2.0)]).splitlines()[1]
    '<testsuites tests="1" failures="0" skipped="0" time="2.0">'
    """
    suites = ElementTree.Element("testsuites", _counts(results))
    for task in dict.fromkeys(result.task for result in results):
        own = [result for result in results if result.task == task]
        suite = ElementTree.SubElement(suites, "testsuite", {"name": task, **_counts(own)})
        for result in own:
            _add_case(suite, result)
    ElementTree.indent(suites, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def read_baseline(path: Path) -> list[SweepResult]:
    """The results of an earlier sweep, its `results.json`.

    Raises:
        InvalidArgumentError: it is no such file.
    """
    try:
        return [SweepResult(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{path} is no results.json of a sweep: {error}") from error


def lost(results: Sequence[SweepResult], baseline: Sequence[SweepResult]) -> list[SweepResult]:
    """What was right and is not any more, of the models of this sweep.

    >>> right = SweepResult(model="bert", task="fill-mask", outcome="ok")
    >>> wrong = SweepResult(model="bert", task="fill-mask", outcome="wrong", reason="differs")
    >>> [loss.reason for loss in lost([wrong], [right])], lost([right], [wrong])
    (['differs'], [])
    """
    found = {(result.task, result.model): result for result in results}
    right = [before for before in baseline if before.outcome == "ok" and (before.task, before.model) in found]
    return [now for before in right if (now := found[before.task, before.model]).outcome != "ok"]


def workflow_errors(results: Sequence[SweepResult]) -> Iterator[str]:
    """A line for each result as GitHub's workflows show it beside a run."""
    for result in results:
        text = f"{result.outcome}: {result.reason}".replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        yield f"::error title={result.task} {result.model}::{text}"


def _counts(results: Sequence[SweepResult]) -> dict[str, str]:
    skipped = sum(result.outcome == _NOT_RUN for result in results)
    right = sum(result.outcome == "ok" for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(len(results) - right - skipped),
        "skipped": str(skipped),
        "time": str(round(sum(result.seconds for result in results), 1)),
    }


def _add_case(suite: ElementTree.Element, result: SweepResult) -> None:
    named = {"classname": result.task, "name": result.model, "time": str(result.seconds)}
    case = ElementTree.SubElement(suite, "testcase", named)
    if result.outcome == "ok":
        return
    kind = "skipped" if result.outcome == _NOT_RUN else "failure"
    entry = ElementTree.SubElement(case, kind, {"message": f"{result.outcome}: {_printable(result.reason)[:200]}"})
    entry.text = _printable(result.reason)


def _printable(text: str) -> str:
    """Without characters that XML does not have, which a message may hold."""
    return "".join(letter if letter in "\t\n" or letter.isprintable() else "?" for letter in text)
