"""A variable that branches and loops assign by `nonlocal` must be bound in the function itself."""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import walked

ORDER = 95


def apply(unit: Unit) -> None:
    """Writes `if False: x = None` where every assignment to a shared x was moved into functions."""
    for node in walked(unit.node):
        if isinstance(node, ast.FunctionDef) and scope.shared(node):
            own = {*scope.parameters(node), *scope.assigned(node.body)}
            unbound = sorted(scope.shared(node) - own)
            if unbound:
                node.body.insert(0, _never(unbound, node))


def _never(names: list[str], where: ast.FunctionDef) -> ast.stmt:
    assignment = ast.Assign([build.store(name) for name in names], ast.Constant(None))
    return ast.copy_location(ast.If(ast.Constant(False), [assignment], []), where.body[0])
