"""A function with `yield` becomes one that calls a function for each thing that it yields.

    def windows(x):                def windows(x):
        for i in range(len(x)):        def _run_1(x, _step):
            yield x[i:i + 2]               for i in range(len(x)):
                                   →           if not _step(x[i:i + 2]):
                                                   return
                                       return _rt.generated(lambda _step: _run_1(x, _step), lambda: _plain_1(x))

The `for` that goes through it hands in its body, which says whether it goes on. So the steps of both functions are one
loop, in which they follow each other as Python has them do. `_plain_1`, which `generators_kept` adds, is the function
as it was: for who goes through it otherwise, and in eager mode.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.errors import RewriteError
from exportguard.source.reading import copied, name_of
from exportguard.source.walking import Transformer, walked

ORDER = 3
STEP = "_step"
_YIELDS = (ast.Yield, ast.YieldFrom)


def apply(unit: Unit) -> None:
    """Rewrites the function, and those in it, if they yield.

    :raises RewriteError: the function itself hands its steps on in a way that no body can be put in place of
    """
    reason = _reason_against(unit.node) if _yields(unit.node) else ""
    if reason:
        raise RewriteError(f"{name_of(unit.original)} is a generator {reason}; let it fill a list and return that")
    for node in walked(unit.node):
        if isinstance(node, ast.FunctionDef) and _yields(node) and not _reason_against(node) and unit.keep(node):
            unit.note(node, "generator")
            _rewrite(node, unit.place(node))


def _yields(node: ast.FunctionDef) -> bool:
    return scope.contains(node.body, *_YIELDS)


def _reason_against(node: ast.FunctionDef) -> str:
    """Why its steps cannot be calls; nothing if they can."""
    statements = {id(n.value) for n in scope.walk_scope(node.body) if isinstance(n, ast.Expr)}
    if any(isinstance(n, _YIELDS) and id(n) not in statements for n in scope.walk_scope(node.body)):
        return "that takes what is sent to it, which no graph can"
    blocks = (n for n in scope.walk_scope(node.body) if isinstance(n, ast.With | ast.Try))
    if any(scope.contains([block], *_YIELDS) for block in blocks):
        return "that yields within a `with` or a `try`, which would cover what is done with it"
    return ""


def _rewrite(node: ast.FunctionDef, place: str) -> None:
    plain = ast.copy_location(ast.FunctionDef(f"_plain_{place}", copied(node.args), [], decorator_list=[]), node)
    plain.args.defaults, plain.args.kw_defaults = [], [None] * len(plain.args.kwonlyargs)
    plain.type_params = []  # type: ignore[attr-defined]
    plain.body = [copied(statement) for statement in node.body]
    node.exportguard_plain = plain  # type: ignore[attr-defined]
    names = scope.parameters(node)
    declared = [n for n in scope.walk_scope(node.body) if isinstance(n, ast.Global | ast.Nonlocal)]
    steps = _Steps()
    body = [part for statement in node.body for part in steps.made(statement)]
    run = build.mark_generated(build.function(f"_run_{place}", [*names, STEP], body, node))
    run.exportguard_shared = scope.shared(node)  # type: ignore[attr-defined]
    called = ast.Call(build.load(run.name), [build.load(name) for name in [*names, STEP]], [])
    handed = ast.Lambda(build.arguments([STEP]), called)
    made = build.call("generated", handed, build.thunk(_call_of(plain)))
    node.body = [*map(copied, declared), run, ast.copy_location(ast.Return(made), node)]


def _call_of(function: ast.FunctionDef) -> ast.expr:
    """The call of a function with variables that are called as its parameters are."""
    own = function.args
    given: list[ast.expr] = [build.load(argument.arg) for argument in [*own.posonlyargs, *own.args]]
    given += [ast.Starred(build.load(own.vararg.arg), ast.Load())] if own.vararg else []
    keywords = [ast.keyword(argument.arg, build.load(argument.arg)) for argument in own.kwonlyargs]
    keywords += [ast.keyword(None, build.load(own.kwarg.arg))] if own.kwarg else []
    return ast.Call(build.load(function.name), given, keywords)


class _Steps(Transformer):
    """`yield` as the call of a step, and `return` without what it gives, which no `for` sees."""

    def made(self, statement: ast.stmt) -> list[ast.stmt]:
        made = self.visit(statement)
        return made if isinstance(made, list) else [made]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        if isinstance(node.value, ast.Yield):
            return self._step(node.value.value or ast.Constant(None), node)
        if isinstance(node.value, ast.YieldFrom):
            name = f"_item_{node.lineno}_{node.col_offset}"
            body = self._step(build.load(name), node)
            return ast.copy_location(ast.For(build.store(name), node.value.value, [body], []), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is None:
            return node
        return [ast.copy_location(made, node) for made in (ast.Expr(node.value), ast.Return(None))]

    @staticmethod
    def _step(item: ast.expr, where: ast.stmt) -> ast.stmt:
        goes_on = ast.Call(build.load(STEP), [item], [])
        leave = ast.copy_location(ast.Return(None), where)
        return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), goes_on), [leave], []), where)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node
