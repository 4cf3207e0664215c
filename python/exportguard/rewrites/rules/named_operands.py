"""An `if` whose test binds names behind its first operand becomes tests inside each other, which know the names.

if a and (m := b) > 1:          if a:
    x = x * m            →          if (m := b) > 1:
else:                                   x = x * m
    x = -x                          else:
                                        x = -x
                                else:
                                    x = -x
"""

from __future__ import annotations

import ast
import copy

from exportguard.rewrites import scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 11


def apply(unit: Unit) -> None:
    """Takes every such test apart, operand by operand."""
    unit.node = _Tests(unit).visit(unit.node)


class _Tests(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_If(self, node: ast.If) -> ast.stmt:
        while isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not) and _binds(node.test.operand):
            node.test = node.test.operand
            node.body, node.orelse = node.orelse or [ast.copy_location(ast.Pass(), node)], node.body
        if _binds(node.test) and self._unit.keep(node):
            self._unit.note(node, "test that binds a name")
            self._apart(node)
        self.generic_visit(node)
        return node

    @staticmethod
    def _apart(node: ast.If) -> None:
        test = node.test
        assert isinstance(test, ast.BoolOp)
        first, *rest = test.values
        behind = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(test.op, rest), test)
        if isinstance(test.op, ast.And):
            inner = ast.If(behind, node.body, copy.deepcopy(node.orelse))
            node.body = [ast.copy_location(inner, node)]
        else:
            inner = ast.If(behind, copy.deepcopy(node.body), node.orelse)
            node.orelse = [ast.copy_location(inner, node)]
        node.test = first


def _binds(test: ast.expr) -> bool:
    """Whether an operand behind the first one binds a name."""
    return isinstance(test, ast.BoolOp) and scope.contains(test.values[1:], ast.NamedExpr)
