"""Prints the sizes of this code's functions and files beside those of the projects it looks up to.

Lines, parameters and branches are lizard's: lines without comments, branches as cyclomatic complexity less one.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import lizard
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
MODELS = [
    ("ExecuTorch runtime (C++)", "4 / 35", "3 / 9", "6 / 31", "1,908"),
    ("ir-py (Python)", "4 / 48", "4 / 13", "12 / 47", "5,290"),
    ("nanobind (C++)", "4 / 51", "4 / 10", "10 / 83", "2,713"),
    ("MLX core (C++)", "7 / 53", "5 / 12", "9 / 59", "6,762"),
]


@dataclass(frozen=True, kw_only=True)
class Figures:
    lines: list[int]
    parameters: list[int]
    branches: list[int]
    longest: tuple[int, str]
    over_60: list[tuple[int, str]]


def tracked(patterns: list[str]) -> list[Path]:
    """Files that git tracks under these patterns."""
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listing.stdout.splitlines()]


def measure(paths: list[Path]) -> Figures:
    functions = []
    longest = (0, "")
    for path in paths:
        longest = max(longest, (len(path.read_text().splitlines()), str(path.relative_to(ROOT))))
        functions += [(path, f) for f in lizard.analyze_file(str(path)).function_list]
    over_60 = [(f.nloc, f"{path.relative_to(ROOT)}: {f.name}") for path, f in functions if f.nloc > 60]
    return Figures(
        lines=sorted(f.nloc for _, f in functions),
        parameters=sorted(f.parameter_count for _, f in functions),
        branches=sorted(f.cyclomatic_complexity - 1 for _, f in functions),
        longest=longest,
        over_60=sorted(over_60, reverse=True),
    )


def at(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(share * len(values)))]


def row(name: str, figures: Figures) -> tuple[str, ...]:
    return (
        name,
        f"{at(figures.lines, 0.5)} / {at(figures.lines, 0.95)}",
        f"{at(figures.parameters, 0.95)} / {figures.parameters[-1]}",
        f"{at(figures.branches, 0.95)} / {figures.branches[-1]}",
        f"{figures.longest[0]:,}",
    )


def main() -> None:
    ours = {
        "exportguard (C++)": measure(tracked(["include/*.h", "src/*.h", "src/*.cpp", "src/*.cu"])),
        "exportguard (Python)": measure(tracked(["python/*.py"])),
    }
    table = Table(title="Sizes of functions and files")
    for heading in ("", "lines median / p95", "parameters p95 / max", "branches p95 / max", "longest file"):
        table.add_column(heading)
    for name, figures in ours.items():
        table.add_row(*row(name, figures), style="bold")
    for model in MODELS:
        table.add_row(*model)
    console = Console()
    console.print(table)
    for name, figures in ours.items():
        console.print(f"{name}: {len(figures.lines)} functions, longest file {figures.longest[1]}")
        for lines, place in figures.over_60:
            console.print(f"  over 60 lines: {lines} {place}")


if __name__ == "__main__":
    main()
