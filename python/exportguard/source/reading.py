"""The definition of a function as a syntax tree, with the line numbers of its file."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
from typing import TypeVar, cast

from exportguard.source.errors import RewriteError

#: The attribute of a function that was compiled here: the tree that its code was compiled from, with the code.
DEFINITION = "__exportguard_definition__"


_Node = TypeVar("_Node", bound=ast.AST)


def copied(tree: _Node) -> _Node:
    """A tree of its own, to be changed, in a fifth of the time of `copy.deepcopy`, which looks for circles."""
    made = tree.__class__.__new__(tree.__class__)
    for name, value in vars(tree).items():
        if isinstance(value, list):
            setattr(made, name, [copied(item) if isinstance(item, ast.AST) else item for item in value])
        else:
            setattr(made, name, copied(value) if isinstance(value, ast.AST) else value)
    return made


def definition_of(function: types.FunctionType) -> ast.FunctionDef:
    """The tree of `function`, the caller's to change: of one that was rewritten, that of its rewritten self.

    :raises RewriteError: there is no source, it is another one by now, or it is that of a lambda or a coroutine
    """
    code, tree = vars(function).get(DEFINITION, (None, None))
    if code is function.__code__:  # which functools.wraps hands on to functions around it
        return copied(cast(ast.FunctionDef, tree))
    lines, first = _lines_of(function)
    definition = _parsed(lines)
    if isinstance(definition, ast.AsyncFunctionDef):
        raise RewriteError(f"{name_of(function)} is a coroutine, which torch.export cannot trace; rewrite it by hand")
    if not isinstance(definition, ast.FunctionDef):
        raise RewriteError(f"{name_of(function)} is not defined by `def`; rewrite it as a function")
    ast.increment_lineno(definition, first - 1)
    _require_same(definition, function)
    return definition


def text_of(function: types.FunctionType) -> str:
    """The source of `function` as its file has it, without the indentation of a method.

    :raises RewriteError: there is none
    """
    return textwrap.dedent("".join(_lines_of(function)[0]))


def name_of(function: types.FunctionType) -> str:
    """ "package.module.Class.method", for messages."""
    return f"{function.__module__}.{function.__qualname__}"


def _lines_of(function: types.FunctionType) -> tuple[list[str], int]:
    """As `inspect.getsourcelines`, which looks at every module of the process to find the file."""
    code = function.__code__
    linecache.checkcache(code.co_filename)  # a module that was loaded again
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if len(lines) < code.co_firstlineno:
        raise RewriteError(
            f"{name_of(function)} has no source ({code.co_filename} cannot be read); only functions defined in a file "
            "can be rewritten"
        )
    return inspect.getblock(lines[code.co_firstlineno - 1 :]), code.co_firstlineno


def _parsed(lines: list[str]) -> ast.stmt | None:
    """The first statement; a string with lines at the margin keeps a method from being dedented."""
    text = "".join(lines)
    try:
        return ast.parse(textwrap.dedent(text)).body[0]
    except IndentationError:
        block = ast.parse(f"if True:\n{text}").body[0]
    except SyntaxError:  # a lambda that stands inside an expression
        return None
    ast.increment_lineno(block, -1)
    return cast(ast.If, block).body[0]


def _require_same(definition: ast.FunctionDef, function: types.FunctionType) -> None:
    """Refuses a file that was changed since the function was made of it."""
    code = function.__code__
    arguments = definition.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    collecting = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    found = [argument.arg for argument in (*named, *collecting)]
    # A private parameter is in the code under its full name.
    is_same = len(found) <= len(code.co_varnames) and all(
        has.endswith(name) for has, name in zip(code.co_varnames, found, strict=False)
    )
    if definition.name != code.co_name or not is_same:
        raise RewriteError(
            f"{name_of(function)} is not what stands in {code.co_filename}, line {code.co_firstlineno}; import the "
            "changed file again"
        )
