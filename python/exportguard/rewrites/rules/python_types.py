"""`isinstance(…)` and `type(…)` become calls that know which objects stand for numbers of Python."""

from __future__ import annotations

import ast
import builtins

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit

ORDER = 57
_BUILT_IN = {"isinstance": "is_instance", "type": "type_"}


def apply(unit: Unit) -> None:
    """Rewrites what asks an object for its type; it is no change by itself."""
    _Types(unit).visit(unit.node)


class _Types(ast.NodeTransformer):
    def __init__(self, unit: Unit) -> None:
        self._outside = scope.Outside(unit.node, unit.original)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        made = _BUILT_IN.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if made is not None and isinstance(node.func, ast.Name):
            is_built_in = self._outside(node.func.id) is vars(builtins)[node.func.id]
            node.func = build.runtime(made) if is_built_in and not node.keywords else node.func
        return node
