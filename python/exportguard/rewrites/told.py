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
from collections.abc import Mapping
from typing import Any

from exportguard.errors import TextOfASymbolError
from exportguard.model_code import is_installed, is_users
from exportguard.source.walking import parts_of, walked

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
_CHECKING = frozenset(("assert", "check", "checks", "ensure", "expect", "require", "validate", "verify"))
_ERRORS = ("Error", "Exception", "Warning")


def stopping(made: Any, stopped: list[Exception]) -> Any:
    """What makes a text of what stands for a number, so that it stops an export where `require_told` does; the errors
    are kept, as a handler of the model may take them."""

    @functools.wraps(made)
    def text(self: Any, *arguments: Any) -> Any:
        frame = sys._getframe(1)
        try:
            require_told(frame)
        except TextOfASymbolError as error:
            if not is_installed(frame.f_code.co_filename):  # packages that tell values, as of pytest, take any error
                stopped.append(error)
            raise
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
    return bool(found) and _goes_into_a_message(found[0], parents, frozenset())


def _goes_into_a_message(text: ast.AST, parents: Mapping[ast.AST, ast.AST], names: frozenset[str]) -> bool:
    """Whether what an expression gives ends in messages alone, on the way of these names and further ones."""
    current = text
    while (parent := parents.get(current)) is not None:
        if isinstance(parent, ast.Raise) or (isinstance(parent, ast.Assert) and parent.msg is current):
            return True
        if isinstance(current, ast.Call) and tells(current):
            return True
        if isinstance(parent, ast.Call) and _checks(parent) and current not in (parent.func, *parent.args[:1]):
            return True
        if isinstance(current, ast.stmt):
            return isinstance(current, ast.Assign) and _is_read_for_messages(current, parents, names)
        current = parent
    return False


def _is_read_for_messages(bound: ast.Assign, parents: Mapping[ast.AST, ast.AST], names: frozenset[str]) -> bool:
    """Whether one name is bound, and each of its readers in its function puts it into a message."""
    (target, *others) = bound.targets
    around: ast.AST | None = bound
    while around is not None and not isinstance(around, ast.FunctionDef):
        around = parents.get(around)
    if others or around is None or not isinstance(target, ast.Name):
        return False
    uses = [node for node in walked(around) if isinstance(node, ast.Name) and node.id == target.id]
    read = [use for use in uses if isinstance(use.ctx, ast.Load)]
    known = names | {target.id}
    return target.id in names or all(_goes_into_a_message(use, parents, known) for use in read)


def _columns(node: ast.expr) -> tuple[int, int | None]:
    return node.col_offset, node.end_col_offset


def tells(call: ast.Call) -> bool:
    """Whether a call prints or logs, or makes an error."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _TELLING or name.endswith(_ERRORS)


def _checks(call: ast.Call) -> bool:
    """Whether a call checks its first operand, and tells the others where it does not hold."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return not _CHECKING.isdisjoint(name.lower().split("_"))


@functools.lru_cache(maxsize=8)
def _parents_in(source: str) -> dict[ast.AST, ast.AST]:
    """What each node of a file is a part of."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    return {child: node for node in walked(tree) for child in parts_of(node)}
