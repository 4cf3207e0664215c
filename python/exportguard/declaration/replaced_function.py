"""One function that a patch replaced: its sources, and how they differ."""

from __future__ import annotations

import difflib
import html
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from exportguard.errors import InvalidArgumentError
from exportguard.source.editing import sources_of
from exportguard.source.wrapping import plain


class Declared(Protocol):
    """What is told of a patch beside what it replaced."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def upstream(self) -> str: ...


def _source(function: Any) -> str:
    if function is None:
        return ""  # the patch adds what was not there
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"# the source of {function!r} is not at hand\n"


@dataclass(frozen=True)
class PatchedFunction:
    """One function that a patch replaced."""

    declaration: Declared
    target: str
    function_to_patch: Any
    patch: Any

    @property
    def sources(self) -> tuple[str, str]:
        """The source of the original and that of what took its place."""
        return sources_of(self.patch) or (_source(self.function_to_patch), _source(self.patch))

    def diff(self) -> str:
        """A unified diff from the original's source to the replacement's."""
        before, after = (source.splitlines() for source in self.sources)
        return "\n".join(difflib.unified_diff(before, after, "original", "patched", lineterm=""))

    def format_diff(self, format: str = "text") -> str:
        """The patch with its reason and its diff, as "text", "rst" or "html".

        :raises InvalidArgumentError: for another format
        """
        if format not in _FORMATS:
            raise InvalidArgumentError(f"format must be one of {', '.join(_FORMATS)}, got '{format}'")
        return _FORMATS[format](self)

    def dump(self, folder: str) -> None:
        """Writes <target>.original.py, <target>.patched.py and <target>.diff."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        original, patched = self.sources
        for ending, text in (("original.py", original), ("patched.py", patched), ("diff", self.diff())):
            path.joinpath(f"{self.target}.{ending}").write_text(f"{text.rstrip()}\n", encoding="utf-8")

    def covers(self, file: str, line: int) -> bool:
        """Whether a line of a file lies in the replacement."""
        code = getattr(plain(self.patch), "__code__", None)
        if code is None or code.co_filename != file:
            return False
        lines = sorted(_lines_of(code))
        return bool(lines) and lines[0] <= line <= lines[-1]


def _lines_of(code: types.CodeType) -> Iterator[int]:
    """The lines of a function and of those that it defines."""
    yield from (number for _, _, number in code.co_lines() if number)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _lines_of(inner)


def _text(function: PatchedFunction) -> str:
    declaration = function.declaration
    link = f"\nupstream: {declaration.upstream}" if declaration.upstream else ""
    return f"{function.target} ({declaration.name})\n{declaration.reason}{link}\n\n{function.diff()}\n"


def _rst(function: PatchedFunction) -> str:
    declaration = function.declaration
    title = f"{declaration.kind}: {function.target}"
    link = f"`upstream <{declaration.upstream}>`__\n\n" if declaration.upstream else ""
    diff = textwrap.indent(function.diff(), "    ")
    return f"{title}\n{'=' * len(title)}\n\n{declaration.reason}\n\n{link}.. code-block:: diff\n\n{diff}\n"


def _html(function: PatchedFunction) -> str:
    declaration = function.declaration
    address = html.escape(declaration.upstream)
    link = f'<p><a href="{address}">upstream</a></p>\n' if address else ""
    return (
        f"<h3>{html.escape(function.target)}</h3>\n<p>{html.escape(declaration.reason)}</p>\n{link}"
        f'<pre class="diff">{html.escape(function.diff())}</pre>\n'
    )


_FORMATS = {"text": _text, "rst": _rst, "html": _html}
