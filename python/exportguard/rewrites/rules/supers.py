"""`super()` works by the first argument of the function it stands in; inside a branch it must be spelled out."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 5


def apply(unit: Unit) -> None:
    """`super()` → `super(__class__, self)`; not a change by itself, so nothing is noted."""
    if unit.first_parameter is not None and "__class__" in unit.original.__code__.co_freevars:
        _Supers(unit.first_parameter).visit(unit.node)


class _Supers(Transformer):
    def __init__(self, first_parameter: str) -> None:
        self._first_parameter = first_parameter

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        is_bare = isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args
        if is_bare:
            node.args = [build.load("__class__"), build.load(self._first_parameter)]
        return node
