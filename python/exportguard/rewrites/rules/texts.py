"""f-strings, `str(…)`, `repr(…)`, `format(…)`, `"…".format(…)` and `"…" % …` become texts that know tensor data.

What a text is searched for may be such a text: `"5 6 7".find(f"{n}")`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.told import tells
from exportguard.source.walking import Transformer

ORDER = 56
_BUILT_IN = {"str": "str_", "repr": "repr_", "format": "format_"}

#: Methods of texts alone that search for their first argument, and those that others have as well.
_SEARCHING = frozenset(
    (
        *("endswith", "find", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex"),
        *("rpartition", "rsplit", "startswith"),
    )
)
_SEARCHING_TOO = frozenset(("count", "index", "lstrip", "rstrip", "split", "strip"))


def apply(unit: Unit) -> None:
    """Rewrites what makes a text of values; in a message that is no change by itself."""
    _Texts(unit).visit(unit.node)


class _Texts(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._is_told = False
        self._own = {*scope.parameters(unit.node), *scope.assigned(unit.node.body), *unit.original.__globals__}

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        with self._in_a_message():
            self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        node.test = self.visit(node.test)
        if node.msg is not None:
            with self._in_a_message():
                node.msg = self.visit(node.msg)
        return node

    @contextmanager
    def _in_a_message(self) -> Iterator[None]:
        before, self._is_told = self._is_told, True
        yield
        self._is_told = before

    def _note(self, node: ast.expr) -> None:
        if not self._is_told and self._unit.keep(node):
            self._unit.note(node, "text")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self._note(node)
        self.generic_visit(node)
        parts = [_part(value) for value in node.values]
        return ast.copy_location(build.call("joined_", ast.List(parts, ast.Load())), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if tells(node):
            with self._in_a_message():
                self.generic_visit(node)
            return node
        self.generic_visit(node)
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            return node
        function = node.func
        if isinstance(function, ast.Name) and function.id in _BUILT_IN and function.id not in self._own:
            self._note(node)
            node.func = build.runtime(_BUILT_IN[function.id])
        elif isinstance(function, ast.Attribute) and function.attr == "format" and _is_text(function.value):
            self._note(node)
            return ast.copy_location(build.call("filled_", function.value, *node.args), node)
        elif isinstance(function, ast.Attribute) and _searches(function) and node.args and not self._is_told:
            node.args[0] = _sought(node.args[0])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn) and _is_text(node.comparators[0]):
            node.left = _sought(node.left)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not _is_text(node.left) or not isinstance(node.op, ast.Mod):
            return node
        self._note(node)
        return ast.copy_location(build.call("percent_", node.left, node.right), node)


def _sought(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) else ast.copy_location(build.call("sought_", node), node)


def _searches(method: ast.Attribute) -> bool:
    """Whether a method of this name searches in a text, which may be that of something else."""
    return method.attr in _SEARCHING or (method.attr in _SEARCHING_TOO and _is_text(method.value))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _part(value: ast.expr) -> ast.expr:
    """One part of an f-string, as the text that it makes."""
    if not isinstance(value, ast.FormattedValue):
        return value
    content = value.value
    if value.conversion in (ord("r"), ord("a")):
        content = build.call("repr_", content)
    elif value.conversion == ord("s"):
        content = build.call("str_", content)
    return build.call("format_", content, *([value.format_spec] if value.format_spec is not None else []))
