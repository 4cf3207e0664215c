"""Source → ast → rules → function: the mechanics that every rewriting rule shares.

The new function has the globals, closure cells, defaults, annotations and attributes of the original; its code carries
the original's file name and line numbers, so that tracebacks and the stack traces of graph nodes point into the user's
file.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from exportguard.rewrites.errors import RewriteError

RUNTIME_NAME = "_exportguard_rewrite"

Rule = Callable[["Unit"], None]


@dataclass
class Unit:
    """The function under rewriting, as rules see and change it."""

    node: ast.FunctionDef
    original: types.FunctionType
    keep: Callable[[ast.AST], bool]  # whether a construct may be rewritten
    applied: list[str]  # "line 12: if → cond", in the order of the source
    absorbs: bool = False  # whether what follows a test goes into its branches
    loops: tuple[range, ...] = ()  # the lines of each loop of the source

    @property
    def first_parameter(self) -> str | None:
        parameters = [*self.node.args.posonlyargs, *self.node.args.args]
        return parameters[0].arg if parameters else None

    def note(self, node: ast.AST, what: str) -> None:
        self.applied.append(f"line {getattr(node, 'lineno', 0)}: {what}")


@dataclass(frozen=True, kw_only=True)
class RewrittenMethod:
    """A rewritten function beside its original."""

    original: Any
    func: Any
    original_source: str
    source: str
    applied: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        return bool(self.applied)

    def diff(self, context: int = 3) -> str:
        """A unified diff of the two sources."""
        lines = difflib.unified_diff(
            self.original_source.splitlines(), self.source.splitlines(), "original", "rewritten", lineterm="", n=context
        )
        return "\n".join(lines)


def source_of(function: types.FunctionType) -> tuple[ast.FunctionDef, str]:
    """The definition of `function` with line numbers of its file, and its source without indentation.

    Raises:
        RewriteError: there is no source, or it is a lambda, a generator or a coroutine.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RewriteError(f"{name} is a generator or a coroutine, which torch.export cannot trace; rewrite it by hand")
    try:
        lines, first = inspect.getsourcelines(function.__code__)  # of a decorator itself, not of what it wraps
    except (OSError, TypeError) as error:
        raise RewriteError(
            f"{name} has no source ({error}); only functions defined in a file can be rewritten"
        ) from error
    text = textwrap.dedent("".join(lines))
    definition = _parsed(text, "".join(lines))
    if not isinstance(definition, ast.FunctionDef):
        raise RewriteError(f"{name} is not defined by `def`; rewrite it as a function")
    ast.increment_lineno(definition, first - 1)
    return definition, text


def _parsed(text: str, indented: str) -> ast.stmt | None:
    """The first statement of `text`; a string with lines at the margin keeps a method from being dedented."""
    try:
        return ast.parse(text).body[0]
    except IndentationError:
        block = ast.parse(f"if True:\n{indented}").body[0]
    except SyntaxError:  # a lambda that stands inside an expression
        return None
    ast.increment_lineno(block, -1)
    return block.body[0] if isinstance(block, ast.If) else None


def rewrite_function(
    function: types.FunctionType, rules: Sequence[Rule], keep: Callable[[ast.AST], bool], absorbs: bool = False
) -> RewrittenMethod:
    """Applies the rules in order to a plain function; one that they made already is left as it is."""
    node, text = source_of(function)
    original_text = ast.unparse(_without_decorators(node))
    unit = Unit(_without_decorators(node), function, keep, [], absorbs, _loops_of(node))
    for rule in () if is_rewritten(function.__code__) else rules:
        rule(unit)
    if not unit.applied:
        return RewrittenMethod(original=function, func=function, original_source=text, source=text, applied=())
    ast.fix_missing_locations(unit.node)
    new = compile_function(unit.node, function)
    return RewrittenMethod(
        original=function,
        func=new,
        original_source=original_text,
        source=ast.unparse(unit.node),
        applied=tuple(unit.applied),
    )


def _loops_of(node: ast.AST) -> tuple[range, ...]:
    loops = (n for n in ast.walk(node) if isinstance(n, ast.For | ast.While))
    return tuple(range(loop.lineno, (loop.end_lineno or loop.lineno) + 1) for loop in loops)


def is_rewritten(code: types.CodeType) -> bool:
    """Whether `compile_function` made the code."""
    return RUNTIME_NAME in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)


def _without_decorators(node: ast.FunctionDef) -> ast.FunctionDef:
    node.decorator_list = []
    return node


class _Mangle(ast.NodeTransformer):
    """`__name` inside a class body means `_Class__name`; outside of the body it must be spelled out."""

    def __init__(self, class_name: str) -> None:
        self._prefix = f"_{class_name.lstrip('_')}"

    def _mangled(self, name: str) -> str:
        return f"{self._prefix}{name}" if name.startswith("__") and not name.endswith("__") else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._mangled(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self._mangled(node.attr)
        return node


def _class_of(function: types.FunctionType) -> str | None:
    parts = function.__qualname__.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None


def compile_function(
    node: ast.FunctionDef, original: types.FunctionType, file: str | None = None
) -> types.FunctionType:
    """The function that `node` defines, in the surroundings of `original`.

    `file` is where the node stands, if it is not the file of the original. The function has the free variables of the
    original, so that the original can run its code.
    """
    class_name = _class_of(original)
    if class_name is not None:
        node = _Mangle(class_name).visit(node)
    free = original.__code__.co_freevars
    factory = ast.FunctionDef(
        name="_factory",
        args=_parameters(free),
        body=[_without_defaults(node), ast.Return(ast.Name(node.name, ast.Load()))],
        decorator_list=[],
        type_params=[],  # type: ignore[call-arg]
    )
    module = ast.Module([ast.copy_location(factory, node)], [])
    space: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(module), file or original.__code__.co_filename, "exec"), space)
    return _in_surroundings(space["_factory"](*[None] * len(free)), original)


def _parameters(names: Sequence[str]) -> ast.arguments:
    parameters = [ast.arg(arg=name) for name in names]
    return ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])


def _import_of_runtime(where: ast.AST) -> ast.stmt:
    names = [ast.alias("runtime", RUNTIME_NAME)]
    return ast.copy_location(ast.ImportFrom(__package__, names, 0), where)


def _without_defaults(node: ast.FunctionDef) -> ast.FunctionDef:
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
    body = [_import_of_runtime(node), *node.body]
    made = ast.FunctionDef(name=node.name, args=bare, body=body, decorator_list=[], type_params=[])  # type: ignore[call-arg]
    return ast.copy_location(made, node)


def _in_surroundings(made: types.FunctionType, original: types.FunctionType) -> types.FunctionType:
    cells = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.__code__.co_freevars)
    code = made.__code__.replace(co_name=original.__code__.co_name, co_qualname=original.__code__.co_qualname)
    new = types.FunctionType(code, original.__globals__, original.__name__, original.__defaults__, closure)
    new.__kwdefaults__ = original.__kwdefaults__
    functools.update_wrapper(new, original)
    del new.__dict__["__wrapped__"]  # it stands in the place of the original, it does not wrap it
    return new


# ---------------------------------------------------------------------------------------------------- wrappers


def innermost(function: Any) -> types.FunctionType:
    """The user's function inside descriptors and decorators that keep `__wrapped__`.

    Raises:
        RewriteError: there is none, as for a built-in function.
    """
    current = function
    while True:
        if isinstance(current, staticmethod | classmethod | types.MethodType):
            current = current.__func__
        elif isinstance(current, property) and current.fget is not None:
            current = current.fget
        elif hasattr(current, "__wrapped__"):
            current = current.__wrapped__
        else:
            break
    if not isinstance(current, types.FunctionType):
        raise RewriteError(f"{function!r} is not a Python function; only those can be rewritten")
    return current


def rewrap(outer: Any, old: types.FunctionType, new: types.FunctionType) -> Any:
    """`outer` with `old` replaced by `new` inside its descriptors and decorators; `outer` itself is left alone.

    Raises:
        RewriteError: a decorator does not keep the function where it can be replaced.
    """
    if outer is old:
        return new
    if isinstance(outer, staticmethod | classmethod):
        return type(outer)(rewrap(outer.__func__, old, new))
    if isinstance(outer, types.MethodType):
        return types.MethodType(rewrap(outer.__func__, old, new), outer.__self__)
    if isinstance(outer, property):
        return property(rewrap(outer.fget, old, new), outer.fset, outer.fdel, outer.__doc__)
    return _rewrap_closure(outer, old, new)


def _rewrap_closure(outer: Any, old: types.FunctionType, new: types.FunctionType) -> Any:
    inner = getattr(outer, "__wrapped__", None)
    if not isinstance(outer, types.FunctionType) or inner is None:
        raise RewriteError(f"{outer!r} is a decorator that hides {old.__qualname__}; rewrite the function by hand")
    replaced = rewrap(inner, old, new)
    cells = [types.CellType(replaced) if _holds(cell, inner) else cell for cell in outer.__closure__ or ()]
    if not any(_holds(cell, replaced) for cell in cells):
        raise RewriteError(
            f"the decorator of {old.__qualname__} does not keep it in a closure; rewrite the function by hand"
        )
    made = types.FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, tuple(cells))
    made.__kwdefaults__ = outer.__kwdefaults__
    functools.update_wrapper(made, outer)
    made.__wrapped__ = replaced  # type: ignore[attr-defined]
    return made


def _holds(cell: types.CellType, item: Any) -> bool:
    try:
        return cell.cell_contents is item
    except ValueError:  # an empty cell
        return False
