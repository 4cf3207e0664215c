"""Makes a changed copy of a function from its installed source.

The copy shares the original's globals, closure, defaults and line numbers, so that errors and the nodes of an exported
program point at the line that the user can read.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from exportguard.patches.declaration import SourceDoesNotFitError

#: The attribute of a rewritten function that holds its original's source and its own, without comments.
SOURCES = "__exportguard_sources__"

_DEFINITION = "__exportguard_definition__"  # the syntax tree that a rewritten function was compiled from
_FACTORY = "_exportguard_factory"
_Node = TypeVar("_Node", bound=ast.AST)


def _source_lines(function: types.FunctionType) -> tuple[list[str], int]:
    """As `inspect.getsourcelines`, which looks at every module of the process to find the file."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if len(lines) < code.co_firstlineno:
        raise SourceDoesNotFitError(f"the source of {function.__qualname__} cannot be read from {code.co_filename}")
    return inspect.getblock(lines[code.co_firstlineno - 1 :]), code.co_firstlineno


def _parse(function: types.FunctionType) -> ast.FunctionDef:
    if hasattr(function, _DEFINITION):  # by another rule, whose changes stay
        return copy.deepcopy(cast(ast.FunctionDef, getattr(function, _DEFINITION)))
    lines, first_line = _source_lines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise SourceDoesNotFitError(f"{function.__qualname__} is not a plain function")
    ast.increment_lineno(tree, first_line - 1)
    return definition


def _without_decorators(definition: ast.FunctionDef) -> ast.FunctionDef:
    # The copy takes the place of what the decorators were given.
    definition.decorator_list = []
    return definition


def _inner_code(definition: ast.FunctionDef, outer_names: list[str], filename: str) -> types.CodeType:
    """Compiles the definition inside a function that has `outer_names`, so that these become free variables."""
    module = ast.parse(f"def {_FACTORY}({', '.join(outer_names)}):\n    return {definition.name}")
    factory = module.body[0]
    cast(ast.FunctionDef, factory).body.insert(0, definition)
    ast.fix_missing_locations(module)
    outer = compile(module, filename, "exec", dont_inherit=True).co_consts
    factory_code = next(const for const in outer if isinstance(const, types.CodeType) and const.co_name == _FACTORY)
    codes = (const for const in factory_code.co_consts if isinstance(const, types.CodeType))
    return next(code for code in codes if code.co_name == definition.name)


def _cells(function: types.FunctionType, names: Mapping[str, Any]) -> dict[str, types.CellType]:
    own = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return own | {name: types.CellType(value) for name, value in names.items()}


def _require_plain(function: Any) -> types.FunctionType:
    if not isinstance(function, types.FunctionType):
        raise SourceDoesNotFitError(f"{function!r} is not a Python function")
    return function


def _wrapped_anew(wrapper: types.FunctionType, inner: Any, copy: types.FunctionType) -> types.FunctionType:
    """The decorator's function around the copy: the same code, with the copy where it held the original."""
    held = [cell.cell_contents is inner for cell in wrapper.__closure__ or ()]
    if not any(held):
        raise SourceDoesNotFitError(f"the decorator of {wrapper.__qualname__} does not hold the function it wraps")
    cells = zip(wrapper.__closure__ or (), held, strict=True)
    closure = tuple(types.CellType(copy) if is_inner else cell for cell, is_inner in cells)
    names = (wrapper.__globals__, wrapper.__name__, wrapper.__defaults__)
    anew = types.FunctionType(wrapper.__code__, *names, closure)
    anew.__kwdefaults__ = wrapper.__kwdefaults__
    functools.update_wrapper(anew, wrapper)
    vars(anew).update(vars(copy), __wrapped__=copy)
    return anew


def _copy(function: types.FunctionType, definition: ast.FunctionDef, names: Mapping[str, Any]) -> types.FunctionType:
    cells = _cells(function, names)
    code = _inner_code(definition, list(cells), function.__code__.co_filename)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    del made.__dict__["__wrapped__"]  # it stands in place of the original, it does not wrap it
    return made


@functools.cache
def _rewrite(function: Any, rule: Any, names: tuple[tuple[str, Any], ...]) -> types.FunctionType:
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:
        return _wrapped_anew(_require_plain(function), inner, _rewrite(inner, rule, names))
    plain = _require_plain(function)
    definition = _without_decorators(_parse(plain))
    before = ast.unparse(definition)
    changed = rule().visit(definition)
    after = ast.unparse(changed)
    if after == before:
        raise SourceDoesNotFitError(f"{plain.__qualname__} does not contain what {rule.__name__} rewrites")
    made = _copy(plain, changed, dict(names))
    setattr(made, SOURCES, (getattr(plain, SOURCES, (before,))[0], after))
    setattr(made, _DEFINITION, changed)
    return made


def placed(node: _Node, like: ast.AST) -> _Node:
    """`node` with all that is in it, at the place of `like`."""
    for part in ast.walk(node):
        ast.copy_location(part, like)
    return node


def rewrite(rule: type[ast.NodeTransformer], **names: Any) -> Callable[[Any], types.FunctionType]:
    """What `Patch.replace` takes: a function -> its copy with `rule` applied to its source.

    :param names: what the rewritten source may use beside the names of the original
    :raises SourceDoesNotFitError: from the returned function, if the rule finds nothing to change
    """
    cache_key: Any = rule
    return lambda function: _rewrite(function, cache_key, tuple(names.items()))
