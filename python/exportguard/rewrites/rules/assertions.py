"""`assert` and `if …: raise` on tensor data become checks of the exported program."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.rules.conditions import is_plain_test
from exportguard.source.walking import Transformer

ORDER = 10


def apply(unit: Unit) -> None:
    """Rewrites assertions and conditional raises."""
    _Assertions(unit).visit(unit.node)


def _failing(name: str, statements: list[ast.stmt], where: ast.stmt) -> ast.FunctionDef:
    return build.function(name, [], statements, where)


class _Assertions(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        if is_plain_test(node.test) or not self._unit.keep(node):
            return node
        self._unit.note(node, "assert")
        arguments = [node.msg] if node.msg is not None else []
        error = ast.Raise(ast.Call(build.load("AssertionError"), arguments, []), None)
        return self._check(node.test, [ast.copy_location(error, node)], node)

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        only_raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
        if not only_raises or is_plain_test(node.test) or not self._unit.keep(node):
            return node
        self._unit.note(node, "if: raise")
        return self._check(build.call("not_", node.test), node.body, node)

    def _check(self, test: ast.expr, failing: list[ast.stmt], where: ast.stmt) -> list[ast.stmt]:
        name = f"_fail_{where.lineno}_{where.col_offset}"
        call = ast.Expr(build.call("check", test, build.load(name)))
        return [_failing(name, failing, where), ast.copy_location(call, where)]
