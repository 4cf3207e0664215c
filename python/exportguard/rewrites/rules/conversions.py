"""`x.item()`, `round(…)`, `divmod(…)` and the functions of `math` become calls that know numbers of tensor data."""

from __future__ import annotations

import ast
import math

from exportguard.rewrites import build, scope
from exportguard.rewrites.arithmetic import MATH
from exportguard.rewrites.engine import Unit

ORDER = 55
_BUILT_IN = {"round": "round_", "divmod": "divmod_"}


def apply(unit: Unit) -> None:
    """Rewrites what asks a tensor for the number that it holds."""
    unit.node = _Conversions(unit).visit(unit.node)


class _Conversions(ast.NodeTransformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._globals = unit.original.__globals__
        self._own = {*scope.parameters(unit.node), *scope.assigned(unit.node.body)}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args) or not self._unit.keep(node):
            return node
        made = self._made(node)
        if made is None:
            return node
        self._unit.note(node, f"{ast.unparse(node.func)}(…)")
        return ast.copy_location(made, node)

    def _made(self, node: ast.Call) -> ast.expr | None:
        function = node.func
        if isinstance(function, ast.Attribute):
            if function.attr == "item" and not node.args:
                return build.call("item", function.value)
            is_math = isinstance(function.value, ast.Name) and self._is(function.value.id, math)
            return self._of_math(function.attr, node) if is_math else None
        if not isinstance(function, ast.Name) or function.id in self._own:
            return None
        if function.id in _BUILT_IN and function.id not in self._globals:
            return build.call(_BUILT_IN[function.id], *node.args)
        known = next((name for name in MATH if self._is(function.id, getattr(math, name))), None)
        return self._of_math(known, node) if known is not None else None

    def _is(self, name: str, value: object) -> bool:
        return name not in self._own and self._globals.get(name) is value

    @staticmethod
    def _of_math(name: str, node: ast.Call) -> ast.expr | None:
        return build.call("math_", ast.Constant(name), *node.args) if name in MATH else None
