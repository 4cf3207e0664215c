"""Marks what the other rules must know of the source as the user wrote it.

A variable that a nested function reads or writes has one cell, which every function over it shares: a branch or the
body of a loop that became a function of its own must assign to that cell, or a function made before, inside or behind
it would see another value. Such names are marked on each function; the rules declare them `nonlocal` where they move
an assignment, and what the cell holds behind a test or a loop comes out of the graph as that of any other place.

A boolean expression that is merely tested may be a truth value; one that is used is `a if a else b`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from exportguard.rewrites import scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import walked

ORDER = 1


def apply(unit: Unit) -> None:
    """Marks functions with their shared names and boolean expressions that are tested; it is no change by itself."""
    for node in walked(unit.node):
        if isinstance(node, ast.FunctionDef):
            scope.mark_shared(node)
        for test in _tests(node):
            _mark_tested(test)


_WITH_TEST = (ast.If, ast.While, ast.IfExp, ast.Assert)


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, _WITH_TEST):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
        yield from node.args


def _mark_tested(test: ast.expr) -> None:
    if isinstance(test, ast.BoolOp):
        test.exportguard_tested = True  # type: ignore[attr-defined]
        for value in test.values:
            _mark_tested(value)
