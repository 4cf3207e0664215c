"""Lists that a function makes longer or shorter become lists of the rewriting while a program is traced: a loop may
fill them, a branch take from them."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, walked

ORDER = 13
_CHANGING = ("append", "extend", "insert", "pop", "remove", "clear")


def apply(unit: Unit) -> None:
    """`[]` → `_rt.list_([])` where a function changes lengths, and what it returns as Python's; it is no change by
    itself."""
    if any(_changes_a_length(node) for node in walked(unit.node)):
        _Lists(unit).visit(unit.node)


def _changes_a_length(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.List | ast.ListComp)
    if isinstance(node, ast.Assign):  # which another function may fill
        return isinstance(node.value, ast.List) and not node.value.elts
    if isinstance(node, ast.BinOp):  # as many elements as a size says
        return isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List)
    return isinstance(node, ast.Attribute) and node.attr in _CHANGING


class _Lists(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """`rows += [row]` binds no name anew."""
        is_list = isinstance(node.op, ast.Add) and isinstance(node.value, ast.List | ast.ListComp)
        if not is_list or not isinstance(node.target, ast.Name):
            return node
        call = build.call("grow", build.load(node.target.id), node.value)
        return ast.copy_location(ast.Expr(call), node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        node.value = _Displays(self._unit).visit(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.value = _Displays(self._unit).visit(node.value) if node.value is not None else None
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            node.value = ast.copy_location(build.call("plain", node.value), node.value)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


class _Displays(Transformer):
    """The lists in the value of an assignment, but not those that a call takes."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_List(self, node: ast.List) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(build.call("list_", *([node] if node.elts else [])), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if self._unit.keeps_sizes and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
            self._unit.note(node, "[…] * n")
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name):
            return node
        if node.func.id == "list" and len(node.args) < 2 and not node.keywords and not self._is_lazy(node.args):
            if node.args:
                self._unit.note(node, "list(…)")
            return ast.copy_location(build.call("list_", *map(build.lazy, node.args)), node)
        node.args = [self._if_empty(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self._if_empty(keyword.value)
        return node

    @staticmethod
    def _is_lazy(arguments: list[ast.expr]) -> bool:
        return any(isinstance(argument, ast.GeneratorExp | ast.Starred) for argument in arguments)

    def _if_empty(self, argument: ast.expr) -> ast.expr:
        is_empty = isinstance(argument, ast.List) and not argument.elts
        return self.visit_List(argument) if is_empty else argument  # type: ignore[arg-type]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node
