"""An assignment to several places of which one has an index becomes assignments one after the other.

    y[i], j = y[j], i      →      _put_3_0, _put_3_0_2 = y[j], i
                                  y[i] = _put_3_0
                                  j = _put_3_0_2

That is what Python does: it takes the value apart, then it stores the parts from left to right, and what is taken apart
in its turn is so when its turn comes. The rule of indices knows one place at a time.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, walked

ORDER = -1


def apply(unit: Unit) -> None:
    """Rewrites assignments that store by an index among other things; not a change by itself, so nothing is noted."""
    unit.node = _Assignments(unit).visit(unit.node)


class _Assignments(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not _stores_by_index(node) or not self._unit.keep(node):
            return node
        return [ast.copy_location(part, node) for part in self._in_turn(node.targets, node.value, node)]

    def _in_turn(self, targets: list[ast.expr], value: ast.expr, where: ast.stmt) -> list[ast.stmt]:
        """`targets = … = value` as assignments of one place each."""
        if len(targets) > 1:
            name = self._name(where)
            parts = [ast.Assign([build.store(name)], value)]
            return [*parts, *(made for t in targets for made in self._in_turn([t], build.load(name), where))]
        (target,) = targets
        if not isinstance(target, ast.Tuple | ast.List):
            return [ast.Assign([target], value)]
        names = [self._name(where) for _ in target.elts]
        apart = [_named(part, name) for part, name in zip(target.elts, names, strict=True)]
        stored: list[ast.stmt] = [ast.Assign([ast.Tuple(apart, ast.Store())], value)]
        for part, name in zip(target.elts, names, strict=True):
            place = part.value if isinstance(part, ast.Starred) else part
            stored += self._in_turn([place], build.load(name), where)
        return stored

    def _name(self, where: ast.stmt) -> str:
        return f"_put_{self._unit.place(where)}"


def _named(part: ast.expr, name: str) -> ast.expr:
    """What stands for a part of a target."""
    return ast.Starred(build.store(name), ast.Store()) if isinstance(part, ast.Starred) else build.store(name)


def _stores_by_index(node: ast.Assign) -> bool:
    """Whether one of several places of an assignment is an element of something."""
    are_many = len(node.targets) > 1 or isinstance(node.targets[0], ast.Tuple | ast.List)
    stored = (n for target in node.targets for n in walked(target) if isinstance(n, ast.Subscript))
    return are_many and any(isinstance(place.ctx, ast.Store) for place in stored)
