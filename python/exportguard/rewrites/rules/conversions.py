"""`x.item()`, `round(…)`, `divmod(…)`, `torch.LongTensor([…])` and the functions of `math` become calls that know
numbers of tensor data, and `pad_sequence(…)` one that knows lists that loops fill."""

from __future__ import annotations

import ast
import builtins
import math

import torch

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.gathering import TYPED
from exportguard.source.walking import Transformer

ORDER = 55
_METHODS = ("item", "bit_length", "numel")
_LOOK_UPS = {"index": "index_", "count": "occurrences", "remove": "remove_"}
_OF_NUMBERS = ("is_integer", "as_integer_ratio", "bit_count", "conjugate", "hex", "to_bytes")
_BUILT_IN = {"round": "round_", "divmod": "divmod_"}
_OF_DIGITS = ("bin", "oct", "hex", "chr", "hash", "bytes", "bytearray", "complex")
_OF_MATH = frozenset(name for name, value in vars(math).items() if callable(value) and not name.startswith("_"))


def apply(unit: Unit) -> None:
    """Rewrites what asks a tensor for the number that it holds."""
    unit.node = _Conversions(unit).visit(unit.node)


class _Conversions(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if any(isinstance(a, ast.Starred) for a in node.args) or not self._unit.keep(node):
            return node
        if self._outside.meant(node.func) is torch.nn.utils.rnn.pad_sequence:
            made: ast.expr | None = ast.Call(build.runtime("pad_sequence"), node.args, node.keywords)
        elif node.keywords and not self._has_options(node):
            return node
        else:
            made = self._made(node)
        if made is None:
            return node
        self._unit.note(node, f"{ast.unparse(node.func)}(…)")
        return ast.copy_location(made, node)

    def _made(self, node: ast.Call) -> ast.expr | None:
        if isinstance(node.func, ast.Attribute):
            return self._made_of_a_method(node.func, node)
        return self._made_of_a_name(node.func, node) if isinstance(node.func, ast.Name) else None

    def _made_of_a_method(self, function: ast.Attribute, node: ast.Call) -> ast.expr | None:
        name, owner = function.attr, function.value
        outside = self._outside(owner.id) if isinstance(owner, ast.Name) else None
        if outside is math:
            return self._of_math(name, node)
        if name in _METHODS and not node.args:
            return build.call(name, owner)
        if name in _LOOK_UPS and node.args:
            return build.call(_LOOK_UPS[name], owner, *node.args)
        if name in TYPED and len(node.args) == 1 and outside is torch:
            return build.call("typed_tensor", ast.Constant(name), *node.args)
        if name in _OF_NUMBERS and not isinstance(outside, type):
            return build.call("method_of_number", ast.Constant(name), owner, *node.args)
        return None

    def _made_of_a_name(self, function: ast.Name, node: ast.Call) -> ast.expr | None:
        value = self._outside(function.id)
        if value is None:
            return None
        built_in = next((made for name, made in _BUILT_IN.items() if value is vars(builtins)[name]), None)
        if built_in is not None:
            return build.call(built_in, *node.args)
        if any(value is vars(builtins)[name] for name in _OF_DIGITS) and node.args:
            return build.call("without_meaning", ast.Constant(function.id), function, *node.args)
        known = next((name for name in _OF_MATH if value is vars(math)[name]), None)
        return self._of_math(known, node) if known is not None else None

    @staticmethod
    def _of_math(name: str, node: ast.Call) -> ast.expr | None:
        if name == "isqrt":
            return build.call("isqrt_", *node.args)
        called = build.call("math_", ast.Constant(name), *node.args)
        called.keywords = node.keywords
        return called if name in _OF_MATH else None

    def _has_options(self, node: ast.Call) -> bool:
        """Whether it is a function of `math` that has options."""
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return self._outside(function.value.id) is math
        value = self._outside(function.id) if isinstance(function, ast.Name) else None
        return value is math.isclose or value is math.prod
