"""What was replayed and what was traced of each model type, and whether the model is that of tracing everything.

    python benchmarks/repeats_by_model.py --write docs/repeats_by_model.md  # every model type of the sweep, once
    python benchmarks/repeats_by_model.py --tasks text-generation fill-mask
    python benchmarks/repeats_by_model.py --models llama bert

It prints a line for each; what it wrote it does not do again, and each model has a process of its own. It ends with 1
if a model is another one than that of tracing everything. Two exports of each model take some seconds.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from own_process import told_by
from sections import markdown_table, write_section

from exportguard.models import BuildOptions, models_of_task
from exportguard.sweep import sweep_cases
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_model, versions

HEADER = ("model", "task", "blocks", "calls replayed", "calls traced in blocks", "model")
#: Seconds for both exports of one model.
PATIENCE = 300
SAME = "the same"
DIFFERS = "another: "

_FOLDER = re.compile(r"/\S*/site-packages/")
_DIFFERENCE = re.compile(r"tracing what repeats once gives another model than tracing everything: (.*)")


def row(report: ValidationReport) -> list[str]:
    """The cells of one model."""
    counts = [str(report.repeats.get(name, 0)) for name in ("blocks", "replayed", "traced")]
    return [report.model, report.task, *counts, _result(report.failure)]


def _result(failure: str) -> str:
    """Whether the models are the same; a model that cannot be built or exported at all has none to compare."""
    difference = _DIFFERENCE.search(failure)
    if difference is not None:
        return DIFFERS + difference[1][:160].replace("|", "/")
    line = _FOLDER.sub("", next(iter(failure.splitlines()), ""))
    return f"not exported: {line[:110]}".replace("|", "/") if failure else SAME


def page(rows: Sequence[Sequence[str]]) -> str:
    """Markdown, with the figures in a sentence and the versions that they hold for."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if version != "not installed")
    found = Counter(one[-1].partition(":")[0] for one in rows)
    told = ", ".join(f"{count} {what}" for what, count in found.most_common())
    replayed, traced = (sum(int(one[place]) for one in rows) for place in (3, 4))
    share = 100 * replayed / max(replayed + traced, 1)
    return (
        f"{len(rows)} models: {told}. Of the calls in repeated blocks {share:.0f} % were replayed.\n\n"
        f"{markdown_table(HEADER, rows)}\nMade with {used}.\n"
    )


def known_rows(path: Path | None) -> list[list[str]]:
    """What an earlier run wrote."""
    if path is None:
        return []
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text(encoding="utf-8").splitlines())
    return [one for one in cells if len(one) == len(HEADER) and one[2].isdigit()]


def asked(models: Sequence[str], tasks: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The models with the tasks that they are built for; every type of the sweep with its first task by default."""
    for task in tasks:
        known = models_of_task(task)
        yield from ((name, task) for name in known if not models or name in models)
    if not tasks and models:
        yield from ((name, None) for name in models)
    elif not tasks:
        yield from {case.model: (case.model, case.task) for case in reversed(sweep_cases())}.values()


def verified(name: str, task: str | None) -> list[str]:
    """The cells of one model, exported both ways in a process of its own."""

    def told() -> str:
        report = validate_model(name, ValidateOptions(build=BuildOptions(task=task), repeats="verify", run=False))
        report.task = report.task or task or ""
        return " | ".join(row(report))

    (line,) = told_by([told], PATIENCE)
    cells = line.split(" | ")
    return cells if len(cells) == len(HEADER) else [name, task or "", "0", "0", "0", f"not exported: {line}"]


def main() -> int:
    """Verifies the models; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--tasks", nargs="+", default=[])
    parser.add_argument("--write", type=Path, default=None, help="a file with the markers")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("exportguard").setLevel(logging.ERROR)

    rows = known_rows(options.write)
    done = {(name, task) for name, task, *_ in rows}
    for name, task in asked(options.models, options.tasks):
        if (name, task) in done:
            continue
        rows.append(verified(name, task))
        print(" | ".join(rows[-1]), flush=True)
        if options.write:
            write_section(options.write, "repeats", page(sorted(rows)))
    return 1 if any(one[-1].startswith(DIFFERS) for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
