"""`x.item()`, `round(…)`, `divmod(…)`, `torch.LongTensor([…])` and the functions of `math` become calls that know
numbers of tensor data."""

from __future__ import annotations

import ast
import builtins
import math

import torch

from exportguard.rewrites import build, scope
from exportguard.rewrites.arithmetic import MATH
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.gathering import TYPED
from exportguard.source.walking import Transformer

ORDER = 55
_METHODS = ("item", "bit_length", "numel")
_BUILT_IN = {"round": "round_", "divmod": "divmod_"}


def apply(unit: Unit) -> None:
    """Rewrites what asks a tensor for the number that it holds."""
    unit.node = _Conversions(unit).visit(unit.node)


class _Conversions(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)

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
            if function.attr in _METHODS and not node.args:
                return build.call(function.attr, function.value)
            if function.attr in TYPED and isinstance(function.value, ast.Name) and len(node.args) == 1:
                is_torch = self._outside(function.value.id) is torch
                return build.call("typed_tensor", ast.Constant(function.attr), *node.args) if is_torch else None
            is_math = isinstance(function.value, ast.Name) and self._outside(function.value.id) is math
            return self._of_math(function.attr, node) if is_math else None
        value = self._outside(function.id) if isinstance(function, ast.Name) else None
        if value is None:
            return None
        built_in = next((made for name, made in _BUILT_IN.items() if value is vars(builtins)[name]), None)
        if built_in is not None:
            return build.call(built_in, *node.args)
        known = next((name for name in (*MATH, "isqrt") if value is getattr(math, name)), None)
        return self._of_math(known, node) if known is not None else None

    @staticmethod
    def _of_math(name: str, node: ast.Call) -> ast.expr | None:
        if name == "isqrt":
            return build.call("isqrt_", *node.args)
        return build.call("math_", ast.Constant(name), *node.args) if name in MATH else None
