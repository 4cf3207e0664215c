"""`and`, `or`, `not`, chained comparisons and the conditional expression become calls that decide at trace time."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.conditions import is_plain_test
from exportguard.rewrites.engine import Unit

ORDER = 50


def apply(unit: Unit) -> None:
    """Rewrites boolean expressions whose operands may be tensors, in nested functions of the rewriting as well."""
    rewriter = _Booleans(unit)
    unit.node.body = [rewriter.visit(statement) for statement in unit.node.body]


def _binds_names(node: ast.AST) -> bool:
    return any(isinstance(n, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(node))


class _Booleans(ast.NodeTransformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def _may_rewrite(self, node: ast.expr) -> bool:
        return not _binds_names(node) and self._unit.keep(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        is_plain = all(is_plain_test(value) for value in node.values)
        self.generic_visit(node)
        if is_plain or not self._may_rewrite(node):
            return node
        self._unit.note(node, "and" if isinstance(node.op, ast.And) else "or")
        function = "and_" if isinstance(node.op, ast.And) else "or_"
        return ast.copy_location(build.call(function, *(build.thunk(value) for value in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        is_plain = is_plain_test(node)
        self.generic_visit(node)
        if is_plain or not isinstance(node.op, ast.Not) or not self._may_rewrite(node):
            return node
        self._unit.note(node, "not")
        return ast.copy_location(build.call("not_", node.operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        is_plain = is_plain_test(node.test)
        self.generic_visit(node)
        if is_plain or not self._may_rewrite(node):
            return node
        self._unit.note(node, "conditional expression")
        call = build.call("ifexp", node.test, build.thunk(node.body), build.thunk(node.orelse), line=node.lineno)
        return ast.copy_location(call, node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`a < b < c` reads b once and means `a < b and b < c`."""
        self.generic_visit(node)
        if len(node.ops) < 2 or is_plain_test(node) or not self._may_rewrite(node):
            return node
        self._unit.note(node, "chained comparison")
        operators = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        operands = [build.thunk(value) for value in [node.left, *node.comparators]]
        return ast.copy_location(build.call("compare", operators, *operands), node)
