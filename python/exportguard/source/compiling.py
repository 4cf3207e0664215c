"""A definition compiled in the surroundings of the function that it is to stand in for.

The new function has the globals, closure cells, defaults, annotations and attributes of the original, and its code the
original's file and line numbers, so that tracebacks and the nodes of an exported program point at the user's lines.
"""

from __future__ import annotations

import ast
import functools
import itertools
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from exportguard.source.errors import RewriteError
from exportguard.source.reading import DEFINITION, name_of
from exportguard.source.walking import located, walked

_FACTORY = "_exportguard_factory"
_UNDERSCORES = "________"


def compiled(
    node: ast.FunctionDef,
    original: types.FunctionType,
    *,
    names: Mapping[str, Any] | None = None,
    file: str | None = None,
    keeps_free: bool = False,
) -> types.FunctionType:
    """The function that `node` defines, in the surroundings of `original`; decorators are left out.

    :param names: what the function may use beside the names of the original, as variables of an enclosing function
    :param file: where the node stands, if it is not the file of the original
    :param keeps_free: the code refers to each enclosing variable of the original, so that the original can run it
    """
    cells = _cells(original, names or {})
    bare = _without_signature(node, original.__code__.co_freevars if keeps_free else ())
    code = _code(bare, original, list(cells), file or original.__code__.co_filename)
    missing = [name for name in code.co_freevars if name not in cells]
    if missing:
        raise RewriteError(f"{name_of(original)} has no enclosing variable {', '.join(missing)}")
    closure = tuple(cells[name] for name in code.co_freevars)
    code = code.replace(co_name=original.__code__.co_name, co_qualname=original.__code__.co_qualname)
    made = types.FunctionType(code, original.__globals__, original.__name__, original.__defaults__, closure)
    made.__kwdefaults__ = original.__kwdefaults__
    functools.update_wrapper(made, original)
    del made.__dict__["__wrapped__"]  # it stands in the place of the original, it does not wrap it
    setattr(made, DEFINITION, (made.__code__, node))
    return made


def _cells(original: types.FunctionType, names: Mapping[str, Any]) -> dict[str, types.CellType]:
    """The cells themselves, an empty one too: its variable may be assigned later."""
    own = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
    return own | {name: types.CellType(value) for name, value in names.items()}


def _code(node: ast.FunctionDef, original: types.FunctionType, outer: list[str], file: str) -> types.CodeType:
    """The code of the definition, compiled where its free variables and private names mean what they meant."""
    # In a class body Python itself spells out `self.__x` and finds `__class__`, and the function's own name stays a
    # global one. Underscores before the name of a class count for neither; without any letter nothing is spelled out.
    class_name = _UNDERSCORES + _class_around(original).lstrip("_")
    owner = ast.ClassDef(class_name, bases=[], keywords=[], body=[node], decorator_list=[], type_params=[])  # type: ignore[call-arg]
    names = [name for name in outer if name != "__class__"]
    factory = ast.FunctionDef(_FACTORY, _parameters(names), [owner], decorator_list=[], type_params=[])  # type: ignore[call-arg]
    module = ast.Module([ast.copy_location(factory, node)], [])
    ast.copy_location(owner, node)
    code = compile(located(module), file, "exec", dont_inherit=True)
    for name in (_FACTORY, class_name, node.name):
        code = _inner(code, name)
    return code


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    codes = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return next(inner for inner in codes if inner.co_name == name)


def _class_around(function: types.FunctionType) -> str:
    """The innermost class whose body holds the `def`, also as part of another function; empty if there is none."""
    parts = function.__code__.co_qualname.split(".")
    classes = [name for name, behind in itertools.pairwise(parts) if "<locals>" not in (name, behind)]
    return classes[-1] if classes and classes[-1].isidentifier() else ""


def _parameters(names: Sequence[str]) -> ast.arguments:
    parameters = [ast.arg(arg=name) for name in names]
    return ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])


def _without_signature(node: ast.FunctionDef, free: Sequence[str]) -> ast.FunctionDef:
    """Defaults and annotations are taken over as objects, so their expressions are not evaluated again."""
    arguments = node.args
    bare = ast.arguments(
        posonlyargs=[ast.arg(arg=a.arg) for a in arguments.posonlyargs],
        args=[ast.arg(arg=a.arg) for a in arguments.args],
        vararg=ast.arg(arg=arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(arg=a.arg) for a in arguments.kwonlyargs],
        kw_defaults=[None] * len(arguments.kwonlyargs),
        kwarg=ast.arg(arg=arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=[],
    )
    # The compiler drops the branch, but what it names stays a variable of the function.
    mention = ast.If(ast.Constant(False), [ast.Expr(ast.Name(name, ast.Load())) for name in free], [])
    body = [*([ast.copy_location(mention, node)] if free else []), *node.body]
    made = ast.FunctionDef(node.name, bare, body, decorator_list=[], type_params=[])  # type: ignore[call-arg]
    return ast.copy_location(made, node)


def require_free_names(
    before: ast.FunctionDef, after: ast.FunctionDef, original: types.FunctionType, names: Mapping[str, Any]
) -> None:
    """Refuses a rewriting that uses one of the added names where the function has it already for something else.

    :raises RewriteError: naming them
    """
    added = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))  # by an earlier rule
    new = frozenset(name for name in names if name not in added or not holds(added[name], names[name]))
    had = _uses(before, new) if new else Counter()
    has = _uses(after, new) if had else had
    taken = sorted(name for name in had if had[name] < has[name])
    if taken:
        raise RewriteError(f"{name_of(original)} has a variable {', '.join(taken)} of its own")


def _uses(node: ast.AST, names: frozenset[str]) -> Counter[str]:
    """How often a tree has each of these names that it has at all."""
    parts = (getattr(part, "id", None) or getattr(part, "arg", None) for part in walked(node) if type(part) in _NAMED)
    return Counter(name for name in parts if name in names)


_NAMED = (ast.Name, ast.arg)


def holds(cell: types.CellType, item: object) -> bool:
    """Whether the variable of an enclosing function has this value; one without a value has none."""
    try:
        return cell.cell_contents is item
    except ValueError:
        return False
