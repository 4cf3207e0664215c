"""Write what sweeps found as a page for the documentation: figures for each task, and every miss with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..command_line import argument
from ..models import models_of_task, tasks
from ..onnx_model import require_writable
from ..sweep import kept_results
from ..sweep.beside import beside_summary
from ..sweep.tables import PageOptions, markdown, summary
from ..version import versions


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard sweep-report`."""

    folder: Path = argument(help="The folder of a sweep, or one with several of them in it.")
    output: Path = argument("-o", "--output", help="The page to write.", default=Path("sweep.md"))


def run(options: Options) -> int:
    """Writes the page and prints the summary."""
    require_writable(options.output, "--output")
    results = kept_results(options.folder)
    made_by = f"exportguard sweep-report {options.folder.name} -o {options.output.name}"
    known = {task: len(models_of_task(task)) for task in tasks()}
    installed = {name: version for name, version in versions().items() if version != "not installed"}
    page = PageOptions(made_by=made_by, versions=installed, known=known)
    options.output.write_text(markdown(results, page), encoding="utf-8")
    Console().print(summary(results), *beside_summary(results), sep="\n")
    return 0
