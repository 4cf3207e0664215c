"""Compare a sweep with patches with one without: no patch may make a model fail that is right without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..command_line import argument
from ..sweep import kept_results
from ..sweep.tables import regressions, summary, terminal_table


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard sweep-compare`."""

    folder: Path = argument(help="The folder of a sweep with patches.")
    without: Path = argument("--without", help="The folder of a sweep of the same models with --no-patch.")


def run(options: Options) -> int:
    """Prints what is right without patches alone, and returns 1 if there is anything."""
    console = Console()
    without = kept_results(options.without)
    both = {(result.task, result.model) for result in without}
    with_patches = [result for result in kept_results(options.folder) if (result.task, result.model) in both]
    console.print(f"with patches: {summary(with_patches)}", f"without: {summary(without)}", sep="\n")
    worse = regressions(with_patches, without)
    if worse:
        console.print(terminal_table(worse))
    console.print(f"{len(worse)} models are right without patches alone")
    return 1 if worse else 0
