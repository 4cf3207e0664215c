"""A list that a loop fills from its front is filled from its end, and turned around behind the loop.

    for row in x:                 _front_3_0 = []
        out.insert(0, row)    →   for row in x:
                                      _front_3_0.append(row)
                                  out = _front_3_0[::-1] + out

That holds where the loop does nothing else with the list, and nobody else has it: the function made it, and nothing but
insertions and appending came before the loop.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, parts_of, walked

ORDER = 7
_Loop = ast.For | ast.While


def apply(unit: Unit) -> None:
    """Rewrites the outermost loops that put elements in front of lists."""
    if any(isinstance(node, ast.Attribute) and node.attr == "insert" for node in walked(unit.node)):
        unit.node = _Fronts(unit).visit(unit.node)


class _Fronts(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node is self._unit.node:
            self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        return self._around(node)

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        return self._around(node)

    def _around(self, loop: _Loop) -> ast.stmt | list[ast.stmt]:
        names = dict.fromkeys(name for node in walked(loop) if (name := _filled_from_the_front(node)))
        own = [name for name in names if self._is_own(name, loop)]
        if not own or not self._unit.keep(loop):
            return loop
        before: list[ast.stmt] = []
        behind: list[ast.stmt] = []
        for name in own:
            front = f"_front_{self._unit.place(loop)}"
            _AtTheEnd(name, front).visit(loop)
            before.append(ast.Assign([build.store(front)], ast.List([], ast.Load())))
            behind.append(ast.Assign([build.store(name)], ast.BinOp(_reversed(front), ast.Add(), build.load(name))))
            self._unit.note(loop, f"{name}.insert(0, …)")
        return [ast.copy_location(statement, loop) for statement in (*before, loop, *behind)]

    def _is_own(self, name: str, loop: _Loop) -> bool:
        """Whether a loop only puts elements in front of a list that the function made for itself."""
        shared = *scope.parameters(self._unit.node), *scope.declared(self._unit.node.body, ast.Nonlocal)
        if name in (*shared, *scope.declared(self._unit.node.body, ast.Global)):
            return False
        if _mentions(loop, name) != sum(_filled_from_the_front(node) == name for node in walked(loop)):
            return False
        earlier = [*_before(self._unit.node, loop)]
        made = [node for node in earlier if isinstance(node, ast.Assign) and _is_made(node, name)]
        known = sum(_mentions(node, name) for node in earlier if _is_made(node, name) or _filled(node) == name)
        return bool(made) and known == sum(isinstance(node, ast.Name) and node.id == name for node in earlier)


class _AtTheEnd(Transformer):
    def __init__(self, name: str, front: str) -> None:
        self._name, self._front = name, front

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if _filled_from_the_front(node) != self._name:
            return node
        call = node.value
        assert isinstance(call, ast.Call)
        appending = ast.Attribute(build.load(self._front), "append", ast.Load())
        return ast.copy_location(ast.Expr(ast.copy_location(ast.Call(appending, call.args[1:], []), call)), node)


def _before(function: ast.FunctionDef, loop: ast.stmt) -> list[ast.AST]:
    """What stands in a function in front of a loop, or in a function inside of it."""
    place = loop.lineno, loop.col_offset
    found: list[ast.AST] = []
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        is_nested = isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.GeneratorExp)
        starts = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if is_nested or (hasattr(node, "lineno") and starts < place):
            found += walked(node) if is_nested else [node]
            pending += [] if is_nested else parts_of(node)
    return found


def _filled(node: ast.AST) -> str:
    """The list that a statement `out.append(…)` or `out.insert(…)` fills; empty for other nodes."""
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    is_filling = isinstance(function, ast.Attribute) and function.attr in ("append", "insert")
    return function.value.id if is_filling and isinstance(function.value, ast.Name) else ""  # type: ignore[union-attr]


def _filled_from_the_front(node: ast.AST) -> str:
    name = _filled(node)
    call = node.value if name and isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords:
        return ""
    place = call.args[0]
    return name if isinstance(place, ast.Constant) and place.value == 0 and type(place.value) is int else ""


def _is_made(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a name a list of its own, and does nothing else with it."""
    if not isinstance(node, ast.Assign) or len(node.targets) > 1 or _mentions(node, name) != 1:
        return False
    target, value = node.targets[0], node.value
    are_many = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    pairs = zip(target.elts, value.elts, strict=True) if are_many else ((target, value),)  # type: ignore[attr-defined]
    return any(isinstance(a, ast.Name) and a.id == name and isinstance(b, ast.List) for a, b in pairs)


def _mentions(node: ast.AST, name: str) -> int:
    return sum(isinstance(inner, ast.Name) and inner.id == name for inner in walked(node))


def _reversed(name: str) -> ast.expr:
    step = ast.Slice(step=ast.UnaryOp(ast.USub(), ast.Constant(1)))
    return ast.Subscript(build.load(name), step, ast.Load())
