"""The definition of a function as a syntax tree, with the line numbers of its file."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
import types
from typing import TypeVar, cast

from exportguard.source.errors import RewriteError
from exportguard.source.walking import MARKS

#: The attribute of a function that was compiled here: the tree that its code was compiled from, with the code.
DEFINITION = "__exportguard_definition__"


_LONG_STRINGS = ('"""', "'''", "\\\n")

_Node = TypeVar("_Node", bound=ast.AST)


def copied(tree: _Node) -> _Node:
    """A tree of its own, to be changed, in a fifth of the time of `copy.deepcopy`, which looks for circles."""
    made = tree.__class__.__new__(tree.__class__)
    values = vars(made)
    for name, value in vars(tree).items():
        if value.__class__ is list:
            values[name] = [copied(item) if isinstance(item, ast.AST) else item for item in value]
        else:
            values[name] = copied(value) if isinstance(value, ast.AST) and value.__class__ not in MARKS else value
    return made


#: What two trees that read alike may differ in.
NOT_COMPARED = frozenset({"ctx", "type_comment", "kind", "type_params"})


def is_same_tree(first: object, second: object) -> bool:
    """Whether two trees read alike, wherever they stand: as their texts do, in a twentieth of the time."""
    if first is second:
        return True
    if first.__class__ is not second.__class__:
        return False
    if isinstance(first, ast.AST):
        own, other = vars(first), vars(second)
        names = (name for name in first._fields if name not in NOT_COMPARED)
        return all(is_same_tree(own.get(name), other.get(name)) for name in names)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_same_tree, first, second))
    return first == second


def definition_of(function: types.FunctionType) -> ast.FunctionDef:
    """The tree of `function`, the caller's to change: of one that was rewritten, that of its rewritten self.

    :raises RewriteError: there is no source, it is another one by now, or it is that of a lambda or a coroutine
    """
    code, tree = vars(function).get(DEFINITION, (None, None))
    if code is function.__code__:  # which functools.wraps hands on to functions around it
        return copied(cast(ast.FunctionDef, tree))
    definition = _parsed(function)
    if isinstance(definition, ast.AsyncFunctionDef):
        raise RewriteError(f"{name_of(function)} is a coroutine, which torch.export cannot trace; rewrite it by hand")
    if not isinstance(definition, ast.FunctionDef):
        raise RewriteError(f"{name_of(function)} is not defined by `def`; rewrite it as a function")
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
    lines = _lines_of_file(function)
    first = function.__code__.co_firstlineno
    return inspect.getblock(lines[first - 1 :]), first


def _lines_of_file(function: types.FunctionType) -> list[str]:
    code = function.__code__
    linecache.checkcache(code.co_filename)  # a module that was loaded again
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if len(lines) < code.co_firstlineno:
        raise RewriteError(
            f"{name_of(function)} has no source ({code.co_filename} cannot be read); only functions defined in a file "
            "can be rewritten"
        )
    return lines


def _parsed(function: types.FunctionType) -> ast.stmt | None:
    """The statement that defines `function`, with the lines of its file; None where it is a part of an expression."""
    lines, first = _lines_of_file(function), function.__code__.co_firstlineno
    last = _last_line(function.__code__)
    is_whole = last is not None and _ends_at(lines, first, last)
    cut = _first_statement(lines[first - 1 : last], first) if is_whole else None
    return cut or _first_statement(_lines_of(function)[0], first)


def _last_line(code: types.CodeType) -> int | None:
    """Where what the code does ends, with the functions in it; None for code that does not know the ends of its parts.

    It is found in a tenth of the time of `inspect.getblock`, which reads the tokens.
    """
    ends = [end for _, end, _, _ in code.co_positions()]
    inner = [_last_line(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    known = [end for end in (*ends, *inner) if end is not None]
    return max(known) if known and None not in inner else None


def _ends_at(lines: list[str], first: int, last: int) -> bool:
    """Whether the definition ends there: behind it may be statements that Python makes no code of."""
    following = (line for line in itertools.islice(lines, last, None) if not _is_blank(line))
    return _indentation(next(following, "")) <= _indentation(lines[first - 1])


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _first_statement(lines: list[str], first: int) -> ast.stmt | None:
    """The first statement of the lines, of which the first has this number; None if they are no whole statement.

    Where a string may have several lines, these stay as they are: what is indented is then parsed in a block.
    """
    text = "".join(lines)
    is_block = lines[0][:1].isspace() and any(quotes in text for quotes in _LONG_STRINGS)
    text = f"if True:\n{text}" if is_block else textwrap.dedent(text)
    try:
        statement = ast.parse("\n" * (first - 1 - is_block) + text).body[0]
    except SyntaxError:
        return None
    return cast(ast.If, statement).body[0] if is_block else statement


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
