"""Small pieces of syntax tree that rules put together."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from exportguard.rewrites import scope
from exportguard.rewrites.engine import RUNTIME_NAME
from exportguard.source.walking import Transformer, walked

RETURNED = "_value_"  # how the names begin of what a block returns before it is left


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def load_behind(name: str) -> ast.Name:
    """A variable that is read behind the statement whose line it has."""
    made = load(name)
    setattr(made, "exportguard_behind", True)  # noqa: B010 - a field of our own
    return made


def is_behind(name: ast.AST) -> bool:
    """Whether `load_behind` made it."""
    return getattr(name, "exportguard_behind", False)


def mark_leaving(statement: ast.If, branch: str) -> ast.If:
    """Marks a test of which a branch, "then" or "else", leaves a block: what it does not assign nobody reads there."""
    setattr(statement, "exportguard_leaving", branch)  # noqa: B010 - a field of our own
    return statement


def leaving_branch(statement: ast.If) -> str:
    """The branch that leaves, or nothing."""
    return getattr(statement, "exportguard_leaving", "")


def mark_asked(value: ast.expr) -> ast.expr:
    """Marks an expression of which it is asked at once whether it is None."""
    setattr(value, "exportguard_asked", True)  # noqa: B010 - a field of our own
    return value


def is_asked(value: ast.AST) -> bool:
    """Whether `mark_asked` marked it."""
    return getattr(value, "exportguard_asked", False)


def mark_held(value: ast.expr) -> None:
    """Marks an expression of which a list, a tuple or a dict is to hold the value, which may be None for Python."""
    setattr(value, "exportguard_held", True)  # noqa: B010 - a field of our own


def is_held(value: ast.AST) -> bool:
    """Whether `mark_held` marked it."""
    return getattr(value, "exportguard_held", False)


def is_of_runtime(function: ast.expr) -> bool:
    """Whether it is `_exportguard_rewrite.function`."""
    is_attribute = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    return is_attribute and function.value.id == RUNTIME_NAME  # type: ignore[attr-defined]


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def runtime(function: str) -> ast.Attribute:
    """`_exportguard_rewrite.function`"""
    return ast.Attribute(load(RUNTIME_NAME), function, ast.Load())


def call(function: str, *arguments: ast.expr, line: int | None = None, **flags: bool) -> ast.Call:
    """A call of the runtime; `line`, and the flags that are set, are passed by keyword."""
    keywords = [ast.keyword("line", ast.Constant(line))] if line is not None else []
    keywords += [ast.keyword(name, ast.Constant(True)) for name, is_set in flags.items() if is_set]
    return ast.Call(runtime(function), list(arguments), keywords)


def thunk(body: ast.expr) -> ast.Lambda:
    """`lambda: body`"""
    return ast.Lambda(no_arguments(), body)


def no_arguments() -> ast.arguments:
    return arguments([])


def arguments(names: Sequence[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(arg=name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )


def function(name: str, parameters: Sequence[str], body: Sequence[ast.stmt], where: ast.AST) -> ast.FunctionDef:
    block = list(body) or [ast.Pass()]
    made = ast.FunctionDef(name=name, args=arguments(parameters), body=block, decorator_list=[])
    setattr(made, "type_params", [])  # noqa: B010 - a field from Python 3.12 on
    setattr(made, "exportguard_made", True)  # noqa: B010 - a field of our own
    return ast.copy_location(made, where)


_LAZY = {"range": "range_", "enumerate": "enumerate_", "zip": "zip_", "reversed": "reversed_"}


def lazy(iterable: ast.expr) -> ast.expr:
    """What a loop goes through: `range(n)` would fix a symbolic n; its twin of the runtime does not."""
    for node in walked(iterable):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LAZY:
            node.func = runtime(_LAZY[node.func.id])
    return iterable


def names_tuple(names: Sequence[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def current_values(names: Sequence[str], certain: set[str]) -> ast.Tuple:
    """`(a, _rt.value(lambda: b))`: variables that may have no value yet are read with care."""
    return ast.Tuple([load(n) if n in certain else call("value", thunk(load(n))) for n in names], ast.Load())


def unbind(names: Sequence[str], where: ast.AST) -> list[ast.stmt]:
    """`if a is UNDEFINED: del a` for each name, so that reading it raises as Python would."""
    statements: list[ast.stmt] = []
    for name in names:
        test = ast.Compare(load(name), [ast.Is()], [runtime("UNDEFINED")])
        removal = ast.Delete([ast.Name(name, ast.Del())])
        removal.exportguard_made = True  # type: ignore[attr-defined]
        statement = ast.If(test, [removal], [])
        statements.append(ast.copy_location(statement, where))
    return statements


def declarations(global_names: Sequence[str], nonlocal_names: Sequence[str], where: ast.AST) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    if global_names:
        made.append(ast.copy_location(ast.Global(list(global_names)), where))
    if nonlocal_names:
        made.append(ast.copy_location(ast.Nonlocal(list(nonlocal_names)), where))
    return made


def is_loop(statement: ast.stmt) -> bool:
    """Whether a rule made the statement of a loop: `(a, b) = _rt.for_(…)`."""
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    function = value.func if isinstance(value, ast.Call) else None
    return function is not None and is_of_runtime(function) and function.attr in ("for_", "while_")  # type: ignore[attr-defined]


def is_made(node: ast.AST) -> bool:
    """Whether `function` or `unbind` made it."""
    return getattr(node, "exportguard_made", False)


def mark_generated(node: ast.FunctionDef) -> ast.FunctionDef:
    """Marks a function as one that a rule made, whose body later rules go through."""
    node.exportguard_generated = True  # type: ignore[attr-defined]
    return node


def is_generated(node: ast.AST) -> bool:
    return getattr(node, "exportguard_generated", False)


def can_move(statements: Sequence[ast.stmt]) -> bool:
    """Whether the statements mean the same in a function of their own; `del` of variables and `yield` do not."""
    return not any(_is_fixed(node) and not is_made(node) for node in scope.walk_scope(statements))


def _is_fixed(node: ast.AST) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.Await)


class OfOneLoop(Transformer):
    """Goes through the statements of a loop whose `break`, `continue` and `return` are its own: of a loop in it, those
    of the `else`."""

    def visit_For(self, node: ast.For) -> ast.stmt:
        return self._behind(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._behind(node)

    def _behind(self, node: ast.For | ast.While) -> ast.stmt:
        orelse = ast.Module(node.orelse, [])
        self.generic_visit(orelse)
        node.orelse = orelse.body
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node
