"""An assignment of a conditional expression becomes an `if`, in a function whose tests take what follows with them.

name = "a" if x.sum() > 0 else "b"     →     if x.sum() > 0:
                                                 name = "a"
                                             else:
                                                 name = "b"

What no graph can hold, such as a word, a function or a class, is then chosen in the branch that goes on with it.
"""

from __future__ import annotations

import ast

from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 6


def apply(unit: Unit) -> None:
    """Rewrites every such assignment, if the unit is to absorb what follows a test."""
    if unit.absorbs:
        unit.node = _Assignments(unit).visit(unit.node)


class _Assignments(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if not isinstance(node.value, ast.IfExp) or not self._unit.keep(node):
            return node
        chosen = node.value
        branches = [[self._assigned(node, value)] for value in (chosen.body, chosen.orelse)]
        return ast.copy_location(ast.If(chosen.test, *branches), node)

    def _assigned(self, node: ast.Assign, value: ast.expr) -> ast.stmt:
        return self.visit_Assign(ast.copy_location(ast.Assign(node.targets, value), node))
