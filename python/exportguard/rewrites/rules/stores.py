"""An index that may be tensor data, of which `x[i]` and `y[i] = …` would ask the value: the number of a step of a loop
over tensors, or the key under which a layer, a function or a number is looked up."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer

ORDER = 15


def apply(unit: Unit) -> None:
    """Rewrites what is read and stored by a variable index; in a loop it is no change by itself."""
    _Loops(unit).visit(unit.node)
    _Elsewhere(unit).visit(unit.node)


class _Loops(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_For(self, node: ast.For) -> ast.stmt:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> ast.stmt:
        if self._unit.keep(node):
            node.body = [Items().visit(statement) for statement in node.body]
            if isinstance(node, ast.While):
                node.test = Items().visit(node.test)
        return node


class _Elsewhere(Transformer):
    """Outside of loops: a single index that is no constant, and a slice that is stored into up to a variable bound. All
    other slices, and several indices, torch itself knows.

    Where sizes stay symbolic one of several may be a list of as many numbers as a size says.
    """

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        return Items().updated(node) if self._is_stored(node, node.target) else node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        return Items().stored(node) if self._is_stored(node, node.targets[0]) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`container.get(key, default)`"""
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "get" or len(node.args) not in (1, 2):
            return node
        if node.keywords or not _may_be_tensor(node.args[0]) or not self._unit.keep(node):
            return node
        self._unit.note(node, "get(…)")
        return ast.copy_location(build.call("entry_or", node.func.value, *node.args), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not self._is_meant(node) or not self._unit.keep(node):
            return node
        self._unit.note(node, "[…]")
        return Items().read(node)

    def _is_stored(self, node: ast.stmt, target: ast.expr) -> bool:
        has_bounds = _has_variable_bounds(target)
        is_kept = (has_bounds or self._is_meant(target)) and self._unit.keep(node)
        if is_kept and has_bounds:
            self._unit.note(node, "[:] = …")
        return is_kept

    def _is_meant(self, target: ast.expr) -> bool:
        parts = target.slice.elts if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Tuple) else []
        may_be_lists = self._unit.keeps_sizes and any(isinstance(part, ast.Name | ast.ListComp) for part in parts)
        return may_be_lists or _is_single(target)


def _is_single(target: ast.expr) -> bool:
    if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice | ast.Tuple):
        return False
    return not isinstance(target.slice, ast.Constant) and _may_be_tensor(target.slice)


def _has_variable_bounds(target: ast.expr) -> bool:
    parts = target.slice.elts if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Tuple) else None
    parts = parts or ([target.slice] if isinstance(target, ast.Subscript) else [])
    return any(isinstance(part, ast.Slice) and not _is_constant(part) for part in parts)


def _may_be_tensor(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(not _is_constant(part) for part in parts)


def _is_constant(part: ast.expr | None) -> bool:
    """Whether an index, or the bounds of a slice, are written as numbers."""
    if isinstance(part, ast.Slice):
        return all(_is_constant(bound) for bound in (part.lower, part.upper, part.step))
    if isinstance(part, ast.UnaryOp):
        return _is_constant(part.operand)
    return part is None or isinstance(part, ast.Constant)


def _index(node: ast.expr) -> ast.expr:
    """An index as an expression: `a, 1:2` → `(a, slice(1, 2, None))`."""
    if isinstance(node, ast.Tuple):
        return ast.Tuple([_index(part) for part in node.elts], ast.Load())
    if not isinstance(node, ast.Slice):
        return node
    bounds = [bound or ast.Constant(None) for bound in (node.lower, node.upper, node.step)]
    return ast.Call(build.load("slice"), bounds, [])


class Items(Transformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return self.read(node) if isinstance(node.ctx, ast.Load) and _may_be_tensor(node.slice) else node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        return self.stored(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        return self.updated(node)

    @staticmethod
    def read(node: ast.Subscript) -> ast.expr:
        """`container[index]`"""
        return ast.copy_location(build.call("get_item", node.value, _index(node.slice)), node)

    @staticmethod
    def stored(node: ast.Assign) -> ast.stmt:
        """`container[index] = content`"""
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Subscript) or not _may_be_tensor(target.slice):
            return node
        call = build.call("set_item", node.value, target.value, _index(target.slice))
        return ast.copy_location(ast.Expr(call), node)

    @staticmethod
    def updated(node: ast.AugAssign) -> ast.stmt:
        """`container[index] += operand`"""
        target = node.target
        if not isinstance(target, ast.Subscript) or not _may_be_tensor(target.slice):
            return node
        name = ast.Constant(type(node.op).__name__)
        call = build.call("update_item", name, target.value, _index(target.slice), node.value)
        return ast.copy_location(ast.Expr(call), node)
