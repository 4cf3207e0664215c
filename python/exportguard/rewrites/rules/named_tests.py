"""A `while` whose test binds a name becomes one that is left where the test fails: its body then knows the name.

while (m := y.max()) > 1:       while True:
    y = y / m              →        if not (m := y.max()) > 1:
                                        break
                                    y = y / m
"""

from __future__ import annotations

import ast

from exportguard.rewrites import scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 9


def apply(unit: Unit) -> None:
    """Moves every such test into the body; one with an `else` stays."""
    unit.node = _Tests(unit).visit(unit.node)


class _Tests(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_While(self, node: ast.While) -> ast.stmt:
        self.generic_visit(node)
        if node.orelse or not scope.contains([node.test], ast.NamedExpr) or not self._unit.keep(node):
            return node
        self._unit.note(node, "test that binds a name")
        fails = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        leaving = ast.copy_location(ast.If(fails, [ast.copy_location(ast.Break(), node.test)], []), node.test)
        node.test, node.body = ast.copy_location(ast.Constant(True), node.test), [leaving, *node.body]
        return node
