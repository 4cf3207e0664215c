"""Whether a context manager may end an exception: by its class, or by the function that makes it.

Python asks the `__exit__` of what a `with` enters, and goes on behind the block where that is true of the exception. So
a manager lets exceptions pass if all that its `__exit__` returns is false; one that `contextlib.contextmanager` makes
of a generator, if nothing in that catches what its `yield` raises; and what a function returns, if it does in each
`return`. All of that is read, and nothing is run: what cannot be read may end an exception.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from exportguard.containers import attribute_of_module
from exportguard.rewrites import scope
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of

#: Modules whose context managers let every exception pass.
_TRANSPARENT = ("torch", "warnings", "decimal", "threading", "_thread", "tempfile", "time")
_TRANSPARENT_CLASSES = ("contextlib.nullcontext", "contextlib.closing", "contextlib.redirect_stdout")
_DEPTH = 6  # functions that call one another for a manager

Names = Sequence[Mapping[str, Any]]


def may_swallow(expression: ast.expr, names: Names, depth: int = _DEPTH) -> bool:
    """Whether what a `with` enters may end an exception that is raised in its block.

    :param names: what names stand for where the expression is, the innermost first
    """
    if isinstance(expression, ast.IfExp):
        return any(may_swallow(value, names, depth) for value in (expression.body, expression.orelse))
    if isinstance(expression, ast.NamedExpr):
        return may_swallow(expression.value, names, depth)
    is_call = isinstance(expression, ast.Call)
    named = expression.func if isinstance(expression, ast.Call) else expression
    manager = resolved(named, names)
    itself = _object_of_method(named, manager, names)
    if isinstance(manager, types.MethodType):
        manager = manager.__func__
    owner = manager if isinstance(manager, type | types.FunctionType | types.BuiltinFunctionType) else type(manager)
    if _is_known(owner):
        return False
    if isinstance(owner, types.FunctionType):
        return not is_call or depth == 0 or _may_make_one_that_swallows(owner, itself, depth - 1)
    return not isinstance(owner, type) or manager is None or _may_exit(owner)


def _object_of_method(named: ast.expr, manager: object, names: Names) -> Any:
    """What a method is called of, which its first parameter stands for; None for what is no method."""
    if isinstance(manager, types.MethodType):
        return manager.__self__
    owner = resolved(named.value, names) if isinstance(named, ast.Attribute) else None
    if not isinstance(named, ast.Attribute) or isinstance(owner, types.ModuleType | type):
        return None
    return None if named.attr in getattr(owner, "__dict__", ()) else owner


def _is_known(owner: object) -> bool:
    module = str(getattr(owner, "__module__", ""))
    path = f"{module}.{getattr(owner, '__qualname__', '')}"
    return module.split(".")[0] in _TRANSPARENT or path in _TRANSPARENT_CLASSES


def _may_exit(manager: type) -> bool:
    """Whether the `__exit__` of a class may return what is true; a class that makes objects of others may."""
    method = inspect.getattr_static(manager, "__exit__", None)
    if not isinstance(method, types.FunctionType) or inspect.getattr_static(manager, "__new__") is not object.__new__:
        return True
    function = _definition(method)
    if function is None or scope.contains(function.body, ast.Yield, ast.YieldFrom):
        return True
    return any(value is not None and not _is_false(value) for value in _returned(function))


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _may_make_one_that_swallows(function: types.FunctionType, itself: Any, depth: int) -> bool:
    inner = vars(function).get("__wrapped__")
    if inner is not None:
        is_of_generator = function.__code__ is _MADE_OF_GENERATOR and isinstance(inner, types.FunctionType)
        definition = _definition(inner) if is_of_generator else None
        return definition is None or _may_catch(definition, _names_in(inner, definition, itself), depth)
    definition = _definition(function)
    if definition is None or scope.contains(definition.body, ast.Yield, ast.YieldFrom, ast.Await):
        return True
    if definition.decorator_list:
        return True
    names = _names_in(function, definition, itself)
    return any(value is None or may_swallow(value, names, depth) for value in _returned(definition))


@contextlib.contextmanager
def _any_manager() -> Iterator[None]:
    yield


_MADE_OF_GENERATOR = _any_manager.__code__  # one code for all that `contextmanager` makes


def _may_catch(generator: ast.FunctionDef, names: Names, depth: int) -> bool:
    """Whether a generator may end what is raised at its `yield`."""
    return any(_is_caught_within(statement, names, depth) for statement in generator.body)


def _is_caught_within(node: ast.AST, names: Names, depth: int) -> bool:
    """Whether a statement has a `yield` in a block that may end an exception."""
    if not scope.contains([node], ast.Yield, ast.YieldFrom):
        return False
    if isinstance(node, ast.YieldFrom | ast.TryStar | ast.AsyncWith):
        return True
    if isinstance(node, ast.Try):
        in_body = scope.contains(node.body, ast.Yield, ast.YieldFrom)
        before_last = scope.contains([*node.body, *node.handlers, *node.orelse], ast.Yield, ast.YieldFrom)
        if (in_body and ending_handlers(node)) or (before_last and leaves_at_last(node)):
            return True
    if isinstance(node, ast.With) and any(may_swallow(item.context_expr, names, depth) for item in node.items):
        return True
    return any(_is_caught_within(part, names, depth) for part in ast.iter_child_nodes(node))


def ending_handlers(block: ast.Try) -> tuple[ast.ExceptHandler, ...]:
    """The handlers behind which a function may go on: not those that raise in the end, and do not leave before."""
    return tuple([handler for handler in block.handlers if not _raises(handler.body)])


def _raises(body: Sequence[ast.stmt]) -> bool:
    may_leave = scope.contains(body, ast.Return) or scope.leaves_loop(body)
    return isinstance(body[-1], ast.Raise) and not may_leave


def leaves_at_last(block: ast.Try) -> bool:
    """Whether a `finally` ends an exception by leaving its function or loop."""
    return scope.contains(block.finalbody, ast.Return) or scope.leaves_loop(block.finalbody)


def _definition(function: types.FunctionType) -> ast.FunctionDef | None:
    try:
        return definition_of(function)
    except RewriteError:
        return None


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    for node in scope.walk_scope(function.body):
        if isinstance(node, ast.Return):
            yield node.value


def _names_in(function: types.FunctionType, definition: ast.FunctionDef, itself: Any) -> Names:
    """What names stand for in a function before it runs: its own are known only where it imports them.

    :param itself: what it is a method of, if that is known
    """
    assigned = scope.assigned(definition.body)
    own: dict[str, Any] = dict.fromkeys([*scope.parameters(definition), *assigned])
    first = next(iter([*definition.args.posonlyargs, *definition.args.args]), None)
    if first is not None and first.arg not in assigned:
        own[first.arg] = itself
    for node in scope.walk_scope(definition.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                own[name] = sys.modules.get(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                own[alias.asname or alias.name] = attribute_of_module(sys.modules.get(node.module or ""), alias.name)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    outer = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    return own, outer, function.__globals__, vars(builtins)


def names_of(frame: types.FrameType) -> Names:
    """What names stand for where a frame is."""
    return frame.f_locals, frame.f_globals, vars(builtins)


def resolved(expression: ast.expr, names: Names) -> Any:
    """The object that a dotted name stands for; None if it cannot be told without running code."""
    if isinstance(expression, ast.Name):
        known = next((table for table in names if expression.id in table), None)
        return None if known is None else known[expression.id]
    if not isinstance(expression, ast.Attribute):
        return None
    owner = resolved(expression.value, names)
    if isinstance(owner, types.ModuleType | type):
        return getattr(owner, expression.attr, None)
    if owner is None:
        return None
    if isinstance(owner, torch.nn.Module) and expression.attr in vars(owner).get("_modules", ()):
        return owner._modules[expression.attr]  # by `Module.__getattr__`, which a class may extend for further names
    found = inspect.getattr_static(owner, expression.attr, None)
    is_plain = isinstance(found, types.FunctionType) or expression.attr in getattr(owner, "__dict__", ())
    return found if is_plain else None  # a property, or the like, is code
