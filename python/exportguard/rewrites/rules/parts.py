"""`for part in x.split(n)` becomes a loop over windows, whose number a dynamic axis decides.

for part in torch.split(x, 2, dim=1)        →   for part in _rt.parts(x, 2, 1)
for part in x.split(lengths.tolist())       →   for part in _rt.parts(x, lengths.tolist())

Elsewhere they are a list, but for those that are unpacked, whose number is that of the names.

parts = x.split(lengths.tolist())           →   parts = _rt.kept_parts(x, lengths.tolist())
"""

from __future__ import annotations

import ast
import builtins

import torch

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = -2
_THROUGH = ("enumerate", "reversed", "zip")
#: The functions, and methods of tensors, of the same arguments.
_SPLITTING = ("split", "split_with_sizes")
_MOST = 2  # the size of the parts and the axis


def apply(unit: Unit) -> None:
    """Rewrites what loops and comprehensions go through."""
    _Parts(unit).visit(unit.node)


class _Parts(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)
        self._unpacked: set[int] = set()

    def visit_For(self, node: ast.For) -> ast.stmt:
        node.iter = self._parts(node.iter)
        self.generic_visit(node)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        node.iter = self._parts(node.iter)
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self._unpacked.add(id(node.value))
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        made = node if id(node) in self._unpacked else self._called("kept_parts", node)
        self.generic_visit(made)
        return made

    def _parts(self, iterable: ast.expr) -> ast.expr:
        if not isinstance(iterable, ast.Call):
            return iterable
        if isinstance(iterable.func, ast.Name) and iterable.func.id in _THROUGH and iterable.args:
            return self._through(iterable.func.id, iterable)
        return self._called("parts", iterable)

    def _called(self, function: str, call: ast.Call) -> ast.Call:
        """The call with a function in the place of `split`, if that is what it calls."""
        operands = self._operands(call)
        if operands is None or not self._unit.keep(call):
            return call
        self._unit.note(call, "split(…)")
        return ast.copy_location(build.call(function, *operands), call)

    def _through(self, name: str, call: ast.Call) -> ast.expr:
        if self._outside(name) is not vars(builtins)[name] or _has_starred(call):
            return call
        operands = [*call.args]
        call.args = [self._parts(argument) for argument in operands]
        is_backwards = name == "reversed" and call.args[0] is not operands[0]
        return ast.copy_location(build.call("parts_backwards", *call.args), call) if is_backwards else call

    def _operands(self, call: ast.Call) -> list[ast.expr] | None:
        """What is split, into parts of which size, and along which axis if that is told."""
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in _SPLITTING or _has_starred(call):
            return None
        is_torch = isinstance(function.value, ast.Name) and self._outside(function.value.id) is torch
        operands = [*call.args] if is_torch else [function.value, *call.args]
        axis = [keyword.value for keyword in call.keywords if keyword.arg == "dim"]
        operands += axis
        is_known = len(call.keywords) == len(axis) and 1 < len(operands) <= 1 + _MOST
        return operands if is_known and (not axis or len(operands) == 1 + _MOST) else None


def _has_starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args)
