"""`and`, `or`, `not`, chained comparisons, the conditional expression and `bool(…)`, `int(…)`, `float(…)` become calls
that decide at trace time."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.rules.conditions import is_plain_test
from exportguard.source.walking import Transformer, walked

ORDER = 50


def apply(unit: Unit) -> None:
    """Rewrites boolean expressions whose operands may be tensors, in nested functions of the rewriting as well."""
    rewriter = _Booleans(unit)
    unit.node.body = [rewriter.visit(statement) for statement in unit.node.body]


_CONVERSIONS = {"bool": "bool_", "int": "int_", "float": "float_"}


def _is_of_python(node: ast.expr) -> bool:
    """Whether an argument is surely no tensor: a constant, a length, a size."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    calls = ("len", "str")
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls
    return isinstance(node, ast.Constant) or is_call


def _binds_names(node: ast.AST) -> bool:
    return any(isinstance(n, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for n in walked(node))


def _read_now(node: ast.expr) -> ast.expr:
    """An operand that is always read: where it binds a name it is read here, for a lambda would bind its own."""
    return build.call("known", node) if _binds_names(node) else build.thunk(node)


class _Booleans(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        is_plain = all(is_plain_test(value) for value in node.values)
        self.generic_visit(node)
        if is_plain or any(_binds_names(value) for value in node.values[1:]) or not self._unit.keep(node):
            return node
        kind = "and" if isinstance(node.op, ast.And) else "or"
        self._unit.note(node, kind)
        operands = [_read_now(node.values[0]), *(build.thunk(value) for value in node.values[1:])]
        if getattr(node, "exportguard_tested", False):
            return ast.copy_location(build.call(f"{kind}_", *operands), node)
        return ast.copy_location(build.call(f"{kind}_value", *operands, line=node.lineno), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        is_plain = is_plain_test(node)
        self.generic_visit(node)
        if is_plain or not isinstance(node.op, ast.Not) or not self._unit.keep(node):
            return node
        self._unit.note(node, "not")
        return ast.copy_location(build.call("not_", node.operand), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = _CONVERSIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        is_one = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
        if function is None or not is_one or not self._unit.keep(node):
            return node
        if isinstance(node.args[0], ast.Constant) or (_is_of_python(node.args[0]) and not self._keeps(function)):
            return node
        self._unit.note(node, f"{function.rstrip('_')}(…)")
        return ast.copy_location(build.call(function, node.args[0]), node)

    def _keeps(self, function: str) -> bool:
        """Whether a conversion of a size is to leave it symbolic."""
        return function == "float_" or (function == "int_" and self._unit.keeps_sizes)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        is_plain = is_plain_test(node.test)
        self.generic_visit(node)
        if is_plain or _binds_names(node.body) or _binds_names(node.orelse) or not self._unit.keep(node):
            return node
        self._unit.note(node, "conditional expression")
        call = build.call("ifexp", node.test, build.thunk(node.body), build.thunk(node.orelse), line=node.lineno)
        return ast.copy_location(call, node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`a < b < c` reads b once and means `a < b and b < c`."""
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn) and not is_plain_test(node):
            operator = ast.Tuple([ast.Constant(type(node.ops[0]).__name__)], ast.Load())
            both = [build.call("known", operand) for operand in (node.left, node.comparators[0])]
            return ast.copy_location(build.call("compare", operator, *both), node)
        is_left = len(node.ops) < 2 or is_plain_test(node) or any(_binds_names(c) for c in node.comparators[1:])
        if is_left or not self._unit.keep(node):
            return node
        self._unit.note(node, "chained comparison")
        operators = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        first = [_read_now(node.left), _read_now(node.comparators[0])]
        operands = [*first, *(build.thunk(value) for value in node.comparators[1:])]
        return ast.copy_location(build.call("compare", operators, *operands), node)
