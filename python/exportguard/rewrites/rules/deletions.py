"""`del name` of a variable, which means nothing in a function of its own, as those that branches and loops become.

del hidden      →      hidden = _exportguard_rewrite.UNDEFINED

Who reads the variable afterwards stops in eager mode.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 4


def apply(unit: Unit) -> None:
    """Assigns what stands for no value; not a change by itself, so nothing is noted."""
    declared = {*scope.declared(unit.node.body, ast.Global), *scope.declared(unit.node.body, ast.Nonlocal)}
    _Deletions(declared).visit(unit.node)


class _Deletions(Transformer):
    """Of the variables of the function itself: of those of others a `del` stays."""

    def __init__(self, declared: set[str]) -> None:
        self._declared = declared

    def visit_Delete(self, node: ast.Delete) -> ast.stmt | list[ast.stmt]:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if build.is_made(node) or not names or self._declared.intersection(names):
            return node
        undefined = ast.Assign([build.store(name) for name in names], build.runtime("UNDEFINED"))
        others = [target for target in node.targets if not isinstance(target, ast.Name)]
        made: list[ast.stmt] = [ast.copy_location(undefined, node)]
        return [*made, ast.copy_location(ast.Delete(others), node)] if others else made
