"""`flag is True` and `flag is not False` become calls that know truth values of tensor data, and `a is b` one that
knows what is one object by the path that it came by."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 2


def apply(unit: Unit) -> None:
    """Rewrites what asks for True or False itself."""
    unit.node = _Identities(unit).visit(unit.node)


class _Identities(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        operand = node.comparators[0]
        is_truth = isinstance(operand, ast.Constant) and isinstance(operand.value, bool)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        if not isinstance(operand, ast.Constant) and not isinstance(node.left, ast.Constant):
            same = ast.copy_location(build.call("is_one", node.left, operand), node)
            is_asked = isinstance(node.ops[0], ast.Is)
            return same if is_asked else ast.copy_location(ast.UnaryOp(ast.Not(), same), node)
        if not is_truth:
            return node
        if self._unit.keep(node):
            self._unit.note(node, ast.unparse(node))
        function = "is_" if isinstance(node.ops[0], ast.Is) else "is_not"
        return ast.copy_location(build.call(function, node.left, operand), node)
