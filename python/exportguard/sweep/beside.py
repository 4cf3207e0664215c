"""What the evaluator made of the files and inputs that onnxruntime was given, over a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .reasons import short_reason
from .run import SweepResult

_HEADING = "| task | run in both | agree | share |\n|---|---|---|---|\n"
_REASONS_HEADING = "| task | model | | reason |\n|---|---|---|---|\n"


def beside_summary(results: Sequence[SweepResult]) -> list[str]:
    """One line, if any model was run by a second runner.

    >>> right = SweepResult(model="a", task="t", outcome="ok", beside="agrees")
    >>> beside_summary([right, SweepResult(model="b", task="t", outcome="ok", beside="differs")])
    ['beside onnxruntime, the evaluator agrees on 1 of 2 models: 1 agrees, 1 differs']
    """
    ran = [result.beside for result in results if result.beside]
    if not ran:
        return []
    counts = Counter(ran)
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return [f"beside onnxruntime, the evaluator agrees on {counts['agrees']} of {len(ran)} models: {listed}"]


def beside_sections(results: Sequence[SweepResult]) -> list[str]:
    """Sections of a page: the figures of each task, and every model that the two do not agree on."""
    ran = sorted((result for result in results if result.beside), key=lambda result: (result.task, result.model))
    if not ran:
        return []
    counts = Counter((result.task, result.beside == "agrees") for result in ran)
    rows = [
        _row(task, counts[task, True], counts[task, False]) for task in dict.fromkeys(outcome.task for outcome in ran)
    ]
    others = [outcome for outcome in ran if outcome.beside != "agrees"]
    return [
        "## The evaluator beside onnxruntime",
        "Every file that onnxruntime loads was run by both, on all the inputs that it was compared with eager on.",
        _HEADING + "\n".join([*rows, _row("all", len(ran) - len(others), len(others))]),
        *([_REASONS_HEADING + "\n".join(map(_reason, others))] if others else []),
    ]


def _row(task: str, agree: int, others: int) -> str:
    return f"| {task} | {agree + others} | {agree} | {100 * agree / (agree + others):.1f} % |"


def _reason(result: SweepResult) -> str:
    return f"| {result.task} | {result.model} | {result.beside} | {short_reason(result.beside_reason)} |"
