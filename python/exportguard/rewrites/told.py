"""Texts that a model makes of what only stands for a number: told in a message, or gone by.

While a program is traced `f"{n}"` of a dynamic size says `s77`. In a message nothing is lost by that; anywhere else the
export stops there, in a function that is not rewritten, so that it is.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import types
from typing import Any

from exportguard.model_code import is_users

_TELLING = (
    "critical",
    "debug",
    "error",
    "exception",
    "info",
    "log",
    "print",
    "warn",
    "warning",
    "warning_once",
    "write",
)
_ERRORS = ("Error", "Exception", "Warning")


class TextOfASymbolError(TypeError):
    """A text is made of what only stands for a number."""

    def __init__(self) -> None:
        super().__init__("a text is made of a dynamic size, or of what is data-dependent")


def stopping(made: Any) -> Any:
    """What makes a text of what stands for a number, so that it stops an export where `require_told` does."""

    @functools.wraps(made)
    def text(self: Any, *arguments: Any) -> Any:
        require_told(sys._getframe(1))
        return made(self, *arguments)

    return text


def require_told(frame: types.FrameType | None) -> None:
    """Stops an export at a text that a frame of the model makes of what stands for a number, unless it is merely told.

    Raises:
        TextOfASymbolError: the model may go by the text.
    """
    if frame is None or not is_users(frame.f_code.co_filename):
        return
    positions = [*frame.f_code.co_positions()][frame.f_lasti // 2]
    if not _is_told(frame.f_code.co_filename, positions):
        raise TextOfASymbolError


def _is_told(file: str, positions: tuple[int | None, int | None, int | None, int | None]) -> bool:
    """Whether an expression stands in a message: in a `raise`, or a call that prints, logs or makes an error."""
    parents = _parents_in("".join(linecache.getlines(file)))
    line, end_line, first, last = positions
    found = [
        node
        for node in parents
        if (getattr(node, "lineno", None), getattr(node, "end_lineno", None)) == (line, end_line)
        and isinstance(node, ast.expr)
        and _columns(node) == (first, last)
    ]
    current: ast.AST | None = found[0] if found else None
    while current is not None:
        parent = parents.get(current)
        if isinstance(parent, ast.Raise) or (isinstance(parent, ast.Assert) and parent.msg is current):
            return True
        if isinstance(current, ast.Call) and tells(current):
            return True
        current = parent
    return False


def _columns(node: ast.expr) -> tuple[int, int | None]:
    return node.col_offset, node.end_col_offset


def tells(call: ast.Call) -> bool:
    """Whether a call prints or logs, or makes an error."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _TELLING or name.endswith(_ERRORS)


@functools.lru_cache(maxsize=8)
def _parents_in(source: str) -> dict[ast.AST, ast.AST]:
    """What each node of a file is a part of."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
