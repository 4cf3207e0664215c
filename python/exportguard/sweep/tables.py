"""The results of a sweep as a table: for a terminal, and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from rich.markup import escape
from rich.table import Table

from ..version import versions
from .beside import beside_sections
from .reasons import short_reason
from .run import SweepResult

_COLUMNS = ("task", "model", "outcome", "nodes", "axes", "comparisons", "beside", "seconds", "reason")


def summary(results: Sequence[SweepResult]) -> str:
    """One line: how many of what outcome; those that do not even run eagerly do not count.

    >>> summary([SweepResult(model="a", task="t", outcome="ok"), SweepResult(model="b", task="t", outcome="wrong")])
    '1 of 2 models that run are right (50.0 %): 1 ok, 1 wrong'
    """
    counts = Counter(result.outcome for result in results)
    running = len(results) - counts["cannot run eagerly"]
    share = 100 * counts["ok"] / running if running else 0.0
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return f"{counts['ok']} of {running} models that run are right ({share:.1f} %): {listed or 'none'}"


def terminal_table(results: Sequence[SweepResult]) -> Table:
    """One line for each result, those that are right last."""
    table = Table("task", "model", "outcome", "nodes", "s", "reason", box=None)
    for result in _sorted(results):
        colour = "green" if result.outcome == "ok" else "red"
        outcome = f"[{colour}]{result.outcome}[/]"
        table.add_row(
            result.task, result.model, outcome, str(result.nodes), str(result.seconds), escape(result.reason[:160])
        )
    return table


def page(results: Sequence[SweepResult]) -> str:
    """The same as a page of HTML, which stands alone: its rows sort by a click, filter by words, and fold."""
    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True).from_string(source)
    return template.render(heading=summary(results), versions=versions(), columns=_COLUMNS, results=_sorted(results))


def _sorted(results: Sequence[SweepResult]) -> list[SweepResult]:
    return sorted(results, key=lambda result: (result.outcome == "ok", result.task, result.model))


_PICTURES = ("pixel_values", "flattened_patches")  # arguments
_HEADING = ("| task | known to transformers | swept | run eagerly | right | share |", "|---|---|---|---|---|---|")


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What stands on a page beside the results: how it was made, with which versions, and the models of each task."""

    made_by: str
    versions: Mapping[str, str]
    known: Mapping[str, int]


def markdown(results: Sequence[SweepResult], options: PageOptions) -> str:
    """A page for the documentation: figures for each task, what is not right and why, and what does not run eagerly."""
    known, versions, made_by = options.known, options.versions, options.made_by
    misses = [result for result in _sorted(results) if result.outcome not in ("ok", "cannot run eagerly")]
    not_running = [result for result in _sorted(results) if result.outcome == "cannot run eagerly"]
    rows = [f"| {task} | {figures} |" for task, figures in _figures(results, known)]
    sections = [
        "# Sweep",
        f"Made by `{made_by}` with {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        " ".join([summary(results) + ".", *_commits(results)]),
        "| task | known to transformers | swept | run eagerly | right | share |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows),
        *_texts_alone(results),
        *beside_sections(results),
        "## Not right",
        "What stops each of them, with the line of the model where it is known.",
        _reasons(misses),
        "## Not run",
        "These cannot be built small, need a package that is not installed, or take inputs of a form not known here.",
        _reasons(not_running),
    ]
    return "\n\n".join(sections) + "\n"


def _commits(results: Sequence[SweepResult]) -> list[str]:
    """Whether all results are of one commit, and of which."""
    counts = Counter(result.commit for result in results if result.commit)
    unknown = len(results) - counts.total()
    if not counts:
        return []
    if len(counts) == 1 and not unknown:
        return [f"All are of commit {next(iter(counts))}."]
    listed = [f"{commit} ({count})" for commit, count in counts.most_common()]
    return [f"They are of several commits: {', '.join([*listed, *([f'unknown ({unknown})'] if unknown else [])])}."]


def _figures(results: Sequence[SweepResult], known: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for task in dict.fromkeys(result.task for result in results):
        counts = Counter(result.outcome for result in results if result.task == task)
        running = counts.total() - counts["cannot run eagerly"]
        share = f"{100 * counts['ok'] / running:.1f} %" if running else "-"
        yield task, f"{known.get(task, '-')} | {counts.total()} | {running} | {counts['ok']} | {share}"


def _texts_alone(results: Sequence[SweepResult]) -> list[str]:
    """Models of pictures and texts that were given no picture."""
    shown = [result for result in results if result.task == "image-text-to-text" and result.inputs]
    names = [outcome.model for outcome in shown if not any(name in outcome.inputs for name in _PICTURES)]
    if not names:
        return []
    return [f"Given a text without a picture, whose form is one of their own: {', '.join(names)}."]


def _reasons(results: Sequence[SweepResult]) -> str:
    rows = [
        f"| {result.task} | {result.model} | {result.outcome} | {short_reason(result.reason)} |" for result in results
    ]
    return "\n".join(["| task | model | outcome | reason |", "|---|---|---|---|", *rows])


def regressions(with_patches: Sequence[SweepResult], without: Sequence[SweepResult]) -> list[SweepResult]:
    """The results with patches of the models that are right without them and not with them."""
    right = {(result.task, result.model) for result in without if result.outcome == "ok"}
    return [patch for patch in with_patches if (patch.task, patch.model) in right and patch.outcome != "ok"]
