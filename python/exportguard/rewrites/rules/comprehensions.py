"""Comprehensions become calls of `comprehension`, which is a loop where its length or its filter is tensor data; so do
generators that `any`, `all`, `sum`, `min`, `max` and `list` take."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.rules.stores import Items
from exportguard.source.walking import Transformer, walked

ORDER = 14
_ITEM = "_item"
_BUILT_IN = {name: f"{name}_" for name in ("any", "all", "sum", "min", "max", "sorted")}
_KEPT = (ast.Lambda, ast.GeneratorExp)  # they may run later, when the variables around them have other values
_Comprehension = ast.ListComp | ast.GeneratorExp


def apply(unit: Unit) -> None:
    """Rewrites comprehensions over one iterable, and the calls of built-in functions that go through something."""
    rewriter = _Comprehensions(unit)
    unit.node.body = [rewriter.visit(statement) for statement in unit.node.body]


class _Comprehensions(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        shadowed = self._shadowed = {*scope.parameters(unit.node), *scope.assigned(unit.node.body)}
        self._at_once: set[int] = set()  # generators that a call takes
        self._built_in = {name: made for name, made in _BUILT_IN.items() if name not in shadowed}

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        can_move = _can_move(node)
        self.generic_visit(node)
        return self._called("comprehension", node) if can_move and self._unit.keep(node) else node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        """One that is kept, or that a loop goes through."""
        can_move = _can_move(node) and id(node) not in self._at_once
        self.generic_visit(node)
        return self._called("later", node) if can_move and self._unit.keep(node) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        takes_more = function in ("sum", "next")  # where the sum begins, and what there is without a next one
        generator = node.args[0] if len(node.args) == 1 or (takes_more and node.args) else None
        is_generator = isinstance(generator, ast.GeneratorExp) and _can_move(generator)
        if function in (*self._built_in, "list", "tuple", "next"):
            self._at_once.add(id(generator))
        self.generic_visit(node)
        if function == "next":
            return self._first_of(node, generator) if is_generator else node  # type: ignore[arg-type]
        makes_a_list = function in ("list", "tuple") and is_generator
        if not self._unit.keep(node) or not (function in self._built_in or makes_a_list):
            return node
        if isinstance(generator, ast.GeneratorExp) and is_generator:
            if makes_a_list:
                node.args[0] = self._called("comprehension", generator)
                return node.args[0] if function == "list" else node
            node.args[0] = self._called("lazily", generator)
        if _is_plain(node.args):
            return node
        self._unit.note(node, f"{function}(…)")
        node.func, node.args = build.runtime(self._built_in[function]), [build.lazy(given) for given in node.args]
        return node

    def _first_of(self, node: ast.Call, generator: ast.GeneratorExp) -> ast.expr:
        """`next((a for b in c if d), e)`, which is a loop that ends at the first one."""
        is_a_loop = len(node.args) > 1 and bool(generator.generators[0].ifs)
        if not is_a_loop or "next" in self._shadowed or not self._unit.keep(node):
            return node
        made = self._called("next_", generator)
        assert isinstance(made, ast.Call)
        made.args.append(node.args[1])
        return made

    def _called(self, function: str, node: _Comprehension) -> ast.expr:
        self._unit.note(node, "comprehension")
        generator = node.generators[0]
        if isinstance(node.elt, ast.Constant) and node.elt.value is None and not generator.ifs:
            return ast.copy_location(build.call("nones", build.lazy(generator.iter)), node)
        items = Items()
        generator.ifs = [items.visit(test) for test in generator.ifs]
        arguments = [build.lazy(generator.iter), _over(generator.target, items.visit(node.elt))]
        if generator.ifs:
            test = generator.ifs[0] if len(generator.ifs) == 1 else _joined(generator.ifs)
            arguments.append(_over(generator.target, test))
        line = node.lineno if function in ("comprehension", "next_") else None
        return ast.copy_location(build.call(function, *arguments, line=line), node)


def _is_plain(arguments: Sequence[ast.expr]) -> bool:
    return all(isinstance(a, ast.Constant) for a in arguments)


def _joined(tests: Sequence[ast.expr]) -> ast.expr:
    joined = ast.BoolOp(ast.And(), list(tests))
    joined.exportguard_tested = True  # type: ignore[attr-defined]
    return ast.copy_location(joined, tests[0])


def _can_move(node: _Comprehension) -> bool:
    """Whether its parts mean the same in functions of their own: they keep no function and bind no outer name."""
    parts = [node.elt, *(test for generator in node.generators for test in generator.ifs)]
    binds = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    found = [inner for part in parts for inner in walked(part)]
    at_once = [inner.args[0] for inner in found if _goes_through(inner)]  # type: ignore[attr-defined]
    moves = not any(isinstance(inner, (*_KEPT, *binds)) and inner not in at_once for inner in found)
    generator = node.generators[0]
    return moves and len(node.generators) == 1 and not generator.is_async and _is_simple(generator.target)


def _goes_through(node: ast.AST) -> bool:
    """Whether it is the call of a built-in function that goes through a generator at once, as `any(a for b in c)`."""
    is_built_in = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILT_IN
    return is_built_in and bool(node.args) and isinstance(node.args[0], ast.GeneratorExp)  # type: ignore[attr-defined]


def _is_simple(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return all(_is_simple(part) for part in target.elts)
    return isinstance(target, ast.Name)


def _over(target: ast.expr, body: ast.expr, item: str = _ITEM, later: Set[str] = frozenset()) -> ast.expr:
    """`lambda target: body`; `(a, (b, c))` is taken apart by a lambda in a lambda.

    :param item: the name of what is taken apart
    :param later: variables that are given another value behind this target: `_` in `(_, a), _`
    """
    if isinstance(target, ast.Name):
        return ast.Lambda(build.arguments([target.id]), body)
    names, parts = [], _parts(target)
    for k, part in enumerate(parts):
        behind = later | {node.id for other in parts[k + 1 :] for node in ast.walk(other) if isinstance(node, ast.Name)}
        is_last = isinstance(part, ast.Name) and part.id not in behind
        names.append(part.id if is_last else f"{item}_{k}")  # type: ignore[attr-defined]
        if isinstance(part, ast.Tuple):
            body = ast.Call(_over(part, body, names[-1], behind), [build.load(names[-1])], [])
    unpacked = ast.Call(ast.Lambda(build.arguments(names), body), [ast.Starred(build.load(item), ast.Load())], [])
    return ast.Lambda(build.arguments([item]), unpacked)


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else []
