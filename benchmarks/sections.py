"""Sections of a Markdown file that commands write: between `<!-- name: begin -->` and `<!-- name: end -->`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line for the header, one for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write_section(path: Path, name: str, text: str) -> None:
    """Replaces what stands between the markers of that name; a file without them is left as it was."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{path} needs the lines {begin.strip()} and {end}")
    path.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
