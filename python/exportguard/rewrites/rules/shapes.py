"""`x.shape[:-1] + (n,)`, where n may be a number of tensor data: a shape of torch joins what has numbers alone."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 58


def apply(unit: Unit) -> None:
    """Rewrites sums with a tuple; whether one is of such a shape is decided while the model is traced."""
    unit.node = _Sums(unit).visit(unit.node)


class _Sums(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._joined: set[ast.expr] = set()

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        are_tuples = [isinstance(part, ast.Tuple) or part in self._joined for part in (node.left, node.right)]
        if not isinstance(node.op, ast.Add) or not any(are_tuples) or not self._unit.keep(node):
            return node
        self._unit.note(node, "a shape of data")
        call = ast.copy_location(ast.Call(build.runtime("joined_shape"), [node.left, node.right], []), node)
        self._joined.add(call)
        return call
