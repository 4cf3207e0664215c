"""Tables and bars in HTML, as notebooks show what a cell returns (`_repr_html_`)."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

_CELL = 'style="text-align: left; padding: 0.1em 0.8em 0.1em 0"'
_BAR = "display: inline-block; height: 0.7em; background: #7a9cc6"
_LONGEST = 12.0  # of a bar, in em


def page(title: str, parts: Iterable[str]) -> str:
    """A heading with what stands below it."""
    return f"<div><p><b>{html.escape(title)}</b></p>{''.join(parts)}</div>"


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells are texts; empty without rows.

    >>> table("axes", ["name"], [["<x>"]]).count("&lt;x&gt;"), table("axes", ["name"], [])
    (1, '')
    """
    lines = [_row("td", row) for row in rows]
    if not lines:
        return ""
    return f"<p>{html.escape(title)}</p><table>{_row('th', header)}{''.join(lines)}</table>"


def bars(title: str, sizes: Mapping[str, float], form: str = "{:g}") -> str:
    """A bar for each name, the longest one in front; empty without sizes."""
    ordered = sorted(sizes.items(), key=lambda entry: -entry[1])
    longest = max((size for _, size in ordered), default=0.0)
    lines = [
        f"<tr><td {_CELL}>{html.escape(name)}</td>"
        f'<td {_CELL}><span style="{_BAR}; width: {_LONGEST * size / (longest or 1.0):.2f}em"></span> '
        f"{html.escape(form.format(size))}</td></tr>"
        for name, size in ordered
    ]
    return f"<p>{html.escape(title)}</p><table>{''.join(lines)}</table>" if lines else ""


def _row(kind: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{kind} {_CELL}>{html.escape(str(cell))}</{kind}>' for cell in cells)}</tr>"
