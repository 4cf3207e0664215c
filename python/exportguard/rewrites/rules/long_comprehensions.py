"""A list comprehension that binds a name of the function, or goes through several things, becomes the loop that it is.

                                            _made_1 = []
    y = torch.stack([t for r in x           for _r_1 in x:
                     if (t := f(r)) > 0])       if (t := f(_r_1)) > 0:
                                        →           _made_1.append(t)
                                            y = torch.stack(_made_1)

It is moved in front of its statement, so nothing may be computed before it there: what stands before it are names and
their attributes. Its own variables get names that nothing else has.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, located, walked

ORDER = 8
_OWN_SCOPES = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)


def apply(unit: Unit) -> None:
    """Moves every such comprehension in front of its statement."""
    _Statements(unit).visit(unit.node)


class _Statements(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        return self._moved(node)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        return self._moved(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        return self._moved(node)

    def _moved(self, node: ast.Assign | ast.Return | ast.Expr) -> ast.stmt | list[ast.stmt]:
        found = _computed_first(node.value) if node.value is not None else None
        if not isinstance(found, ast.ListComp) or not _is_long(found) or not self._unit.keep(found):
            return node
        self._unit.note(found, "comprehension as a loop")
        self._unit.loops += (range(found.lineno, (found.end_lineno or found.lineno) + 1),)
        place = f"{found.lineno}_{found.col_offset}"
        name = f"_made_{place}"
        loop = _loop(found, name, place)
        start = ast.copy_location(ast.Assign([build.store(name)], ast.List([], ast.Load())), found)
        _Replacing(found, build.load(name)).visit(node)
        return [located(start), located(loop), node]


def _is_long(node: ast.ListComp) -> bool:
    """Whether it binds a name or has several `for`, and keeps no function that its own variables are in."""
    parts = [node.elt, *(test for generator in node.generators for test in generator.ifs)]
    inner = [part for whole in parts for part in walked(whole)]
    if any(isinstance(part, (*_OWN_SCOPES, ast.Yield, ast.Await)) for part in inner):
        return False
    binds = any(isinstance(part, ast.NamedExpr) for part in inner)
    return (binds or len(node.generators) > 1) and not any(generator.is_async for generator in node.generators)


def _computed_first(node: ast.expr) -> ast.expr | None:
    """The first expression that Python computes in another, beyond names, attributes and constants."""
    if isinstance(node, ast.ListComp):
        return node
    for child in _in_order(node):
        if not _is_read(child):
            return _computed_first(child)
    return None


def _in_order(node: ast.expr) -> Sequence[ast.expr]:
    """The parts of an expression in the order in which Python computes them, for those that compute all of them."""
    if isinstance(node, ast.Call):
        return [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        return [node.value]
    if isinstance(node, ast.Tuple | ast.List):
        return node.elts
    return []


def _is_read(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return _is_read(node.value)
    return isinstance(node, ast.Name | ast.Constant)


def _loop(node: ast.ListComp, name: str, place: str) -> ast.stmt:
    """The comprehension as loops that append to a list."""
    own = scope.assigned([generator.target for generator in node.generators])
    rename = _Renaming({variable: f"_{variable}_{place}" for variable in own})
    append = ast.Call(ast.Attribute(build.load(name), "append", ast.Load()), [rename.visit(node.elt)], [])
    body: ast.stmt = ast.copy_location(ast.Expr(append), node)
    for position, generator in reversed([*enumerate(node.generators)]):
        for test in reversed(generator.ifs):
            body = ast.copy_location(ast.If(rename.visit(test), [body], []), node)
        iterable = rename.visit(generator.iter) if position else generator.iter  # the first is read outside
        made = ast.For(rename.visit(generator.target), iterable, [body], [])
        body = ast.copy_location(made, node)
    return body


class _Renaming(Transformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


class _Replacing(Transformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old = old
        self._new = new

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return ast.copy_location(self._new, node) if node is self._old else node
