"""Writes the tables of docs/optimizer.md from what the patterns say of themselves.

python tools/optimizer_document.py
"""

from __future__ import annotations

from pathlib import Path

from exportguard import _core

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "optimizer.md"
BEGIN, END = "<!-- patterns: begin -->", "<!-- patterns: end -->"


def table() -> str:
    """A row for each pattern, in the order of the names."""
    rows = ["| pattern | matches | makes | from opset | for |", "| --- | --- | --- | --- | --- |"]
    for name, matches, makes, opset, target in sorted(_core.optimizer_patterns()):
        rows.append(f"| `{name}` | {matches} | {makes} | {opset} | {'all' if target == 'portable' else target} |")
    return "\n".join(rows)


def with_table(document: str) -> str:
    """The document with the table of the patterns that are there."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
