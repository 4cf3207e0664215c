"""`torch.tensor([x[0], x[1]])` in a function without anything else to rewrite: torch would read what the tensors hold.

Beside other things to rewrite the rule of loops has taken care of it, and what it does is no change by itself.
"""

from __future__ import annotations

import ast

from exportguard.rewrites.engine import RUNTIME_NAME, Unit
from exportguard.source.walking import walked

ORDER = 85


def apply(unit: Unit) -> None:
    """Notes that there is something to rewrite after all."""
    if unit.applied:
        return
    for node in walked(unit.node):
        if _makes_a_tensor(node) and unit.keep(node):
            unit.note(node, "torch.tensor(…)")


def _makes_a_tensor(node: ast.AST) -> bool:
    """Whether it makes a tensor of something else than numbers that stand there."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    is_ours = isinstance(node.func.value, ast.Name) and node.func.value.id == RUNTIME_NAME
    is_of_values = any(isinstance(part, ast.Name | ast.Subscript) for part in ast.walk(node.args[0]))
    return is_ours and node.func.attr in ("tensor", "as_tensor", "new_tensor") and is_of_values
