"""What a function of the model's returns may be None where tensor data say so; a call of one gives the value itself, or
ends the run.

return self.first(x) + 1     →     return _rt.sure(self.first(x)) + 1

`k = self.first(x)` of a variable that is asked for None, and a call of which it is asked at once, stay what they are:
`optional_variables` knows them.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, located

ORDER = 87


def apply(unit: Unit) -> None:
    """Rewrites every call that may be one of a function of the model's, if the unit is to tell where they give None."""
    if not unit.tells_nones:
        return
    rewriter = _Calls(scope.Outside(unit.node, unit.original))
    unit.node = rewriter.visit(unit.node)
    if rewriter.found and not unit.applied:
        unit.note(unit.node, "calls that may give None")


class _Calls(Transformer):
    def __init__(self, outside: scope.Outside) -> None:
        self._outside = outside
        self.found = False  # whether there are such calls

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """What nobody reads may be anything."""
        is_call = isinstance(node.value, ast.Call) and self._may_be_models(node.value)
        self.generic_visit(node.value if is_call else node)
        if is_call:
            node.value = located(ast.copy_location(build.call("dropped", node.value), node.value))
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not self._may_be_models(node):
            return node
        self.found = True
        what = "asked" if build.is_asked(node) else "stored" if build.is_held(node) else "sure"
        return located(ast.copy_location(build.call(what, node), node))

    def _may_be_models(self, node: ast.Call) -> bool:
        """Whether a function of the model's may be called: no built-in one, no class, and none of the rewriting."""
        return not build.is_of_runtime(node.func) and scope.may_be_function(self._outside.meant(node.func))
