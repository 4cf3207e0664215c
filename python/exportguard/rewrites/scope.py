"""Which variables statements assign and read: what the rules need to turn statements into functions."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from exportguard.containers import attribute_of_module
from exportguard.source.walking import parts_of, walked

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def walk_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node of these statements that runs in the same function, in the order of the source."""
    pending = [*nodes][::-1]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += parts_of(node)[::-1]


def parameters(function: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters."""
    return _names_of(function.args)


def _names_of(arguments: ast.arguments) -> list[str]:
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return names + [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]


def assigned(statements: Sequence[ast.AST]) -> list[str]:
    """Names that the statements bind in their function, in the order of the first binding."""
    names: dict[str, None] = {}
    comprehensions = []
    for node in walk_scope(statements):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names[node.id] = None
        elif isinstance(node, _COMPREHENSIONS):
            comprehensions.append(node)
        elif isinstance(node, _DEFINITIONS):
            if not getattr(node, "exportguard_made", False):  # a rule's functions are used where they are defined
                names[node.name] = None
        elif isinstance(node, _IMPORTS):
            names.update({(a.asname or a.name).split(".")[0]: None for a in node.names})
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names[node.name] = None
    targets = (part for node in comprehensions for generator in node.generators for part in walked(generator.target))
    for target in targets:  # a comprehension's own
        if isinstance(target, ast.Name) and not _stored_elsewhere(statements, target):
            names.pop(target.id, None)
    return list(names)


def _stored_elsewhere(statements: Sequence[ast.AST], target: ast.Name) -> bool:
    inside = {
        id(node)
        for comprehension in walk_scope(statements)
        if isinstance(comprehension, _COMPREHENSIONS)
        for generator in comprehension.generators
        for node in walked(generator.target)
    }
    return any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id == target.id
        and id(node) not in inside
        for node in walk_scope(statements)
    )


def declared(statements: Sequence[ast.AST], kind: type[ast.Global] | type[ast.Nonlocal]) -> list[str]:
    """Names under `global` or `nonlocal` declarations."""
    return [name for node in walk_scope(statements) if isinstance(node, kind) for name in node.names]


def contains(statements: Sequence[ast.AST], *kinds: type[ast.AST]) -> bool:
    """Whether a node of these kinds runs in the same function."""
    return any(isinstance(node, kinds) for node in walk_scope(statements))


def leaves_loop(statements: Sequence[ast.AST]) -> bool:
    """Whether a `break` or `continue` among the statements belongs to a loop around them."""
    return any(True for _ in _jumps_of_loop(statements))


def breaks(statements: Sequence[ast.AST]) -> bool:
    """Whether a `break` among the statements belongs to a loop around them."""
    return any(isinstance(jump, ast.Break) for jump in _jumps_of_loop(statements))


def _jumps_of_loop(statements: Sequence[ast.AST]) -> Iterator[ast.Break | ast.Continue]:
    for node in statements:
        if isinstance(node, ast.Break | ast.Continue):
            yield node
        elif isinstance(node, ast.For | ast.While):
            yield from _jumps_of_loop(node.orelse)
        elif not isinstance(node, _SCOPES):
            yield from _jumps_of_loop(parts_of(node))


def always_leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether the end of the statements is never reached because every path returns or raises."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return always_leaves(last.body) and always_leaves(last.orelse)
    if isinstance(last, ast.With):
        return always_leaves(last.body)
    return False


def reads(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that are read anywhere below, nested functions included; `x += 1` reads x as well as it binds it."""
    return {name.id for node in nodes for inner in walked(node) if (name := read_by(inner)) is not None}


def read_by(node: ast.AST) -> ast.Name | None:
    """The name that this very node reads: a name, or the target of an augmented assignment, whose context says that it
    is bound alone."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target
    return node if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None


def mark_shared(function: ast.FunctionDef) -> None:
    """Notes on a function of the user's which of its variables nested functions use."""
    own = {*parameters(function), *assigned(function.body)} - {
        *declared(function.body, ast.Global),
        *declared(function.body, ast.Nonlocal),
    }
    used = {name for node in _nested(function.body) for name in _free(node)}
    function.exportguard_shared = frozenset(own & used)  # type: ignore[attr-defined]


def shared(function: ast.FunctionDef) -> frozenset[str]:
    """The variables of a function that its nested functions use, as `mark_shared` found them."""
    return getattr(function, "exportguard_shared", frozenset())


_Nested = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.GeneratorExp
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)


def _nested(statements: Iterable[ast.AST]) -> Iterable[_Nested]:
    """Functions, lambdas, classes and generators that may be kept: all but what a call takes at once."""
    pending = [*statements]
    while pending:
        node = pending.pop()
        if isinstance(node, _NESTED):
            yield node
        elif isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            pending += [node.func, *parts_of(node.args[0])]
        else:
            pending += parts_of(node)


def _free(node: _Nested) -> set[str]:
    """Names that a nested function uses without binding them itself; too many rather than too few."""
    if isinstance(node, ast.GeneratorExp):
        bound = {name for generator in node.generators for name in assigned([generator.target])}
    elif isinstance(node, ast.Lambda):
        bound = set(_names_of(node.args))
    elif isinstance(node, ast.ClassDef):
        bound = set()
    else:
        outer = {*declared(node.body, ast.Nonlocal), *declared(node.body, ast.Global)}
        bound = {*_names_of(node.args), *assigned(node.body)} - outer
    names = {n.id for n in walked(node) if isinstance(n, ast.Name)}
    outer_names = {name for n in walked(node) if isinstance(n, ast.Nonlocal) for name in n.names}
    return (names | outer_names) - bound


class Outside:
    """What the names of a function stand for that are not its own: globals of its module, else built-in."""

    def __init__(self, node: ast.FunctionDef, function: types.FunctionType) -> None:
        nodes = walked(node)
        arguments = {argument.arg for argument in nodes if isinstance(argument, ast.arg)}
        stored = {name.id for name in nodes if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
        self._own = {*arguments, *stored, *assigned(node.body), *function.__code__.co_freevars}
        self._globals = function.__globals__
        self.first = next(iter(parameters(node)), "")  # of its parameters: `self`

    def __call__(self, name: str) -> object:
        """None for a variable of the function, of one in it or around it, and for what is not there."""
        return None if name in self._own else self._globals.get(name, vars(builtins).get(name))

    def meant(self, function: ast.expr) -> Any:
        """What such a name stands for, or one of a module, `itertools.count`, `torch.nn.functional.pad`; None for any
        other expression."""
        if isinstance(function, ast.Attribute):
            module = self.meant(function.value)
            return attribute_of_module(module, function.attr) if isinstance(module, types.ModuleType) else None
        return self(function.id) if isinstance(function, ast.Name) else None


def may_be_function(meant: object) -> bool:
    """Whether what a called expression stands for may be a function that is defined by `def`; None: it is not known."""
    return meant is None or isinstance(meant, types.FunctionType)
