"""`torch.div(size, number, rounding_mode=…)`, a tensor whose value torch does not know, becomes a division of sizes."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 60


def apply(unit: Unit) -> None:
    """Rewrites every such division; whether it is one of sizes is decided while the model is traced."""
    unit.node = _Divisions(unit).visit(unit.node)


class _Divisions(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        rounds = any(keyword.arg == "rounding_mode" for keyword in node.keywords)
        if ast.unparse(node.func) != "torch.div" or not rounds or not self._unit.keep(node):
            return node
        self._unit.note(node, "torch.div")
        node.func = build.runtime("div")
        return node
