"""`out[i] is None` and `o is None` of what a loop draws from a list of Nones become calls: only a run may know."""

from __future__ import annotations

import ast

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, walked

ORDER = -3


def apply(unit: Unit) -> None:
    """Rewrites such tests, at whatever lines, for they are answered otherwise of what is not Python's list; it is no
    change by itself."""
    rewriter = _Nones(unit.node)
    unit.node.body = [rewriter.visit(statement) for statement in unit.node.body]


def _makes_nones(node: ast.expr) -> bool:
    """Whether an expression is `[None] * n` or `[None for _ in …]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        made = (node.left, node.right)
        return any(isinstance(part, ast.List) and all(map(_is_none, part.elts)) for part in made)
    return isinstance(node, ast.ListComp) and _is_none(node.elt)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _anded(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _is_told(test: ast.expr, target: ast.expr) -> bool:
    """Whether a test is `target is not None`."""
    is_test = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot)
    if not is_test or not isinstance(target, ast.Name):
        return False
    is_of_it = isinstance(test.left, ast.Name) and test.left.id == target.id  # type: ignore[attr-defined]
    return is_of_it and _is_none(test.comparators[0])  # type: ignore[attr-defined]


class _Nones(Transformer):
    def __init__(self, function: ast.AST) -> None:
        assigned = [node for node in walked(function) if isinstance(node, ast.Assign) and _makes_nones(node.value)]
        lists = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
        through = [node for node in walked(function) if isinstance(node, ast.For | ast.comprehension)] if lists else []
        #: What a loop or a comprehension draws, with the list that it comes from.
        self._lists = lists
        self._drawn = {
            name.id: part.id
            for node in through
            for part in walked(node.iter)
            if isinstance(part, ast.Name) and part.id in lists
            for name in walked(node.target)
            if isinstance(name, ast.Name)
        }

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """`for o in out if o is not None`: the others are no part of what it goes through."""
        is_list = isinstance(node.iter, ast.Name) and node.iter.id in self._lists
        tests = [part for test in node.ifs for part in _anded(test)] if is_list else []
        others = [test for test in tests if not _is_told(test, node.target)]
        if len(others) < len(tests):
            node.iter = ast.copy_location(build.call("filled_ones", node.iter), node.iter)
            node.ifs = others
        self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        is_asked = len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and _is_none(node.comparators[0])
        call = self._called(node.left) if is_asked else None
        if call is None:
            return node
        made = call if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), call)
        return ast.copy_location(made, node)

    def _called(self, left: ast.expr) -> ast.expr | None:
        if isinstance(left, ast.Subscript) and not isinstance(left.slice, ast.Slice | ast.Tuple):
            return build.call("is_none_at", left.value, left.slice)
        if isinstance(left, ast.Name) and left.id in self._drawn:
            return build.call("is_none_in", build.load(self._drawn[left.id]), left)
        return None
