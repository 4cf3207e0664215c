"""Drops the care for variables that may have no value where they surely have one.

The other rules read every variable that they move as `_rt.value(lambda: x)` and remove it again where it came without a
value. Here the function is read from top to bottom with the set of names that surely have a value at each statement.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import RUNTIME_NAME, Unit
from exportguard.source.walking import Transformer, walked

ORDER = 90


def apply(unit: Unit) -> None:
    """Simplifies what the other rules wrote."""
    if not unit.applied:
        return
    unit.node.body, _ = _Flow().block(unit.node.body, set(scope.parameters(unit.node)))


def _is_runtime(node: ast.AST, function: str) -> bool:
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_attribute and node.value.id == RUNTIME_NAME and node.attr == function  # type: ignore[attr-defined]


def _unbound_name(statement: ast.stmt) -> str | None:
    """x of `if x is UNDEFINED: del x`."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return None
    left, right = statement.test.left, statement.test.comparators[0]
    return left.id if isinstance(left, ast.Name) and _is_runtime(right, "UNDEFINED") else None


def _is_assigned_first(name: str, statements: Sequence[ast.stmt]) -> bool:
    """Whether straight code gives the name a value before anything can read it."""
    for statement in statements:
        if _unbound_name(statement) not in (None, name):
            continue
        is_straight = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.FunctionDef)
        if not is_straight or name in scope.reads([statement]):
            return False
        if name in scope.assigned([statement]):
            return True
    return False


class _Values(Transformer):
    """`_rt.value(lambda: x)` → `x` for names with a value."""

    def __init__(self, certain: set[str]) -> None:
        self._certain = certain

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not _is_runtime(node.func, "value"):
            return node
        read = node.args[0]
        is_certain = isinstance(read, ast.Lambda) and isinstance(read.body, ast.Name) and read.body.id in self._certain
        return read.body if is_certain and isinstance(read, ast.Lambda) else node


class _Flow:
    def __init__(self) -> None:
        self._at_end: dict[str, set[str]] = {}  # names with a value where a function made by a rule ends

    def block(self, statements: Sequence[ast.stmt], certain: set[str]) -> tuple[list[ast.stmt], set[str]]:
        """The simplified statements, and the names that have a value behind them."""
        certain = set(certain)
        kept: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            name = _unbound_name(statement)
            if name is not None and (name in certain or _is_assigned_first(name, statements[position + 1 :])):
                continue
            kept.append(statement)
            certain = self._statement(statement, certain)
        return kept or [ast.copy_location(ast.Pass(), statements[0])] if statements else [], certain

    def _statement(self, statement: ast.stmt, certain: set[str]) -> set[str]:
        if isinstance(statement, ast.FunctionDef):
            return self._function(statement, certain)
        if _unbound_name(statement) is not None:
            return certain
        if isinstance(statement, ast.If):
            return self._if(statement, certain)
        if isinstance(statement, ast.With):
            statement.body, after = self.block(statement.body, certain | set(scope.assigned(statement.items)))
            return after
        if isinstance(statement, ast.For | ast.While | ast.Try):
            self._inner_blocks(statement, certain)
            return certain
        _Values(certain).visit(statement)
        return self._after_simple(statement, certain)

    def _function(self, node: ast.FunctionDef, certain: set[str]) -> set[str]:
        if build.is_made(node):  # its parameters have a value where their namesakes have one at the definition
            node.body, self._at_end[node.name] = self.block(node.body, certain)
        else:
            node.body, _ = _Flow().block(node.body, set(scope.parameters(node)))
        return certain | {node.name}

    def _if(self, statement: ast.If, certain: set[str]) -> set[str]:
        statement.body, after_then = self.block(statement.body, certain)
        statement.orelse, after_else = self.block(statement.orelse, certain)
        if scope.always_leaves(statement.body):
            return after_else
        return after_then if scope.always_leaves(statement.orelse) else after_then & after_else

    def _inner_blocks(self, statement: ast.For | ast.While | ast.Try, certain: set[str]) -> None:
        inner = set(certain)
        if isinstance(statement, ast.For):
            inner |= set(scope.assigned([statement.target]))
        statement.body, _ = self.block(statement.body, inner)
        statement.orelse, _ = self.block(statement.orelse, certain)
        if isinstance(statement, ast.Try):
            statement.finalbody, _ = self.block(statement.finalbody, certain)
            for handler in statement.handlers:
                handler.body, _ = self.block(handler.body, certain)

    def _after_simple(self, statement: ast.stmt, certain: set[str]) -> set[str]:
        if isinstance(statement, ast.Delete):
            return certain - set(scope.assigned([statement]))
        bound = set(scope.assigned([statement])) - {
            n.target.id for n in walked(statement) if isinstance(n, ast.NamedExpr)
        }
        call = statement.value if isinstance(statement, ast.Assign) else None
        if not isinstance(call, ast.Call):
            return certain | bound
        if _is_runtime(call.func, "if_"):
            then, orelse = (self._at_end[branch.id] for branch in call.args[1:3] if isinstance(branch, ast.Name))
            return certain | (bound & then & orelse)
        if _is_runtime(call.func, "for_") or _is_runtime(call.func, "while_"):
            return certain
        return certain | bound
