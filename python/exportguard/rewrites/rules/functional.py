"""`map`, `filter`, `list`, `zip(*…)`, `rows.sort()`, `functools.reduce` and functions of `itertools` become calls that
know symbolic lengths."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
from typing import cast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.fixed_loops import is_repetition
from exportguard.source.walking import Transformer

ORDER = 16
_BUILT_IN = {
    **{"map": "map_", "filter": "filter_", "list": "list_of", "tuple": "tuple_of", "iter": "iter_"},
}
_ITERTOOLS = (
    *("accumulate", "chain", "islice", "product", "combinations"),
    *("takewhile", "dropwhile", "filterfalse", "starmap"),
    *("count", "cycle", "repeat", "zip_longest"),
)
_OF_MODULES = {
    **{getattr(itertools, name): f"{name}_" for name in _ITERTOOLS},
    **{itertools.pairwise: "pairwise_", functools.reduce: "reduce_"},
}
_WITH_KEYWORDS = ("accumulate_", "product_", "count_", "zip_longest_")
_WITHOUT_ARGUMENTS = ("count_",)


def apply(unit: Unit) -> None:
    """Rewrites every call of them, with what it takes made lazy."""
    unit.node = _Calls(unit).visit(unit.node)


class _Calls(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """`rows.sort(…)` → `_rt.sort_(rows, …)`"""
        self.generic_visit(node)
        call = node.value
        if not isinstance(call, ast.Call) or call.args or not self._unit.keep(node):
            return node
        if isinstance(call.func, ast.Attribute) and call.func.attr == "sort":
            self._unit.note(node, "sort(…)")
            call.args, call.func = [call.func.value], build.runtime("sort_")
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """`a, *b, c = rows` → `a, b, c = _rt.apart(rows, 1, 1)`"""
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Tuple | ast.List) or not self._unit.keep(node):
            return node
        place = next((k for k, element in enumerate(target.elts) if isinstance(element, ast.Starred)), None)
        if place is None or isinstance(node.value, ast.Tuple | ast.List):
            return node
        self._unit.note(node, "*… =")
        target.elts[place] = cast(ast.Starred, target.elts[place]).value
        behind = len(target.elts) - place - 1
        node.value = build.call("apart", build.lazy(node.value), ast.Constant(place), ast.Constant(behind))
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if self._is_unzip(node) and self._unit.keep(node):
            self._unit.note(node, "zip(*…)")
            return ast.copy_location(
                build.call("unzip_", *(a.value for a in node.args if isinstance(a, ast.Starred))), node
            )
        if self._is_cached(node.func) and self._unit.keep(node):
            self._unit.note(node, "a cached function")
            node.func = build.call("uncached", node.func)
            return node
        made = self._made(node.func)
        if made is None or not (node.args or made in _WITHOUT_ARGUMENTS) or not self._unit.keep(node):
            return node
        if made == "iter_" and len(node.args) > 1:  # of a function
            return node
        if any(isinstance(a, ast.Starred) for a in node.args) or (node.keywords and made not in _WITH_KEYWORDS):
            return node
        self._unit.note(node, f"{ast.unparse(node.func)}(…)")
        arguments = [build.lazy(argument) for argument in node.args]
        return ast.copy_location(ast.Call(build.runtime(made), arguments, node.keywords), node)

    def visit_List(self, node: ast.List) -> ast.expr:
        """`[a, *rows]` → `_rt.concatenated([a], rows)`"""
        self.generic_visit(node)
        is_read = isinstance(node.ctx, ast.Load) and any(isinstance(e, ast.Starred) for e in node.elts)
        if not is_read or not self._unit.keep(node):
            return node
        self._unit.note(node, "[*…]")
        parts = [e.value if isinstance(e, ast.Starred) else ast.List([e], ast.Load()) for e in node.elts]
        return ast.copy_location(build.call("concatenated", *map(build.lazy, parts)), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`[a, b] * n` → `_rt.repeated([a, b], n)`"""
        self.generic_visit(node)
        if not is_repetition(node) or not self._unit.keep(node):
            return node
        self._unit.note(node, "[…] * …")
        return ast.copy_location(build.call("repeated", node.left, node.right), node)

    def _is_unzip(self, node: ast.Call) -> bool:
        """Whether it is `zip(*pairs)`."""
        is_zip = isinstance(node.func, ast.Name) and self._outside(node.func.id) is zip
        return is_zip and len(node.args) == 1 and isinstance(node.args[0], ast.Starred)

    def _is_cached(self, function: ast.expr) -> bool:
        return isinstance(self._outside.meant(function), functools._lru_cache_wrapper)

    def _made(self, function: ast.expr) -> str | None:
        """The name of what takes the place of a function."""
        value = self._outside.meant(function)
        try:
            return _OF_MODULES.get(value) or _BUILT_IN.get(self._built_in(value))
        except TypeError:  # a value that cannot be looked up is none of them
            return None

    @staticmethod
    def _built_in(value: object) -> str:
        return next((name for name in _BUILT_IN if value is vars(builtins)[name]), "")
