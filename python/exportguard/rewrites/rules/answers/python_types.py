"""`isinstance(…)`, `type(…)` and `….__class__` become calls that know which objects stand for numbers of Python."""

from __future__ import annotations

import ast
import builtins

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 57
_BUILT_IN = {"isinstance": "is_instance", "type": "type_"}


def apply(unit: Unit) -> None:
    """Rewrites what asks an object for its type. `isinstance` is no change by itself: modules know it."""
    _Types(unit).visit(unit.node)


class _Types(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        made = _BUILT_IN.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if made is not None and isinstance(node.func, ast.Name):
            is_built_in = self._outside(node.func.id) is vars(builtins)[node.func.id]
            if is_built_in and not node.keywords:
                node.func = build.runtime(made)
                is_told = made == "type_" and not self._is_of_itself(node.args)
                if is_told and self._unit.keep(node):
                    self._unit.note(node, "type(…)")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_read = node.attr == "__class__" and isinstance(node.ctx, ast.Load)
        if not is_read or self._is_of_itself([node.value]) or not self._unit.keep(node):
            return node
        self._unit.note(node, ast.unparse(node))
        return ast.copy_location(build.call("class_of", node.value), node)

    def _is_of_itself(self, asked: list[ast.expr]) -> bool:
        """Whether an object of a class of the model's is asked by its own method, or a class is made."""
        is_first = isinstance(asked[0], ast.Name) and asked[0].id == self._unit.first_parameter if asked else False
        return len(asked) != 1 or (is_first and self._unit.first_parameter in ("self", "cls"))
