"""What can catch an exception that is raised now: a `try`, `with` or `finally` of the model, up the whole call stack.

An exception that depends on tensor data becomes a check of the program, which ends a run. That is what Python does only
if nothing between the `raise` and the export catches it. The stack at trace time is the one that eager mode has there,
so every handler that could run stands at the current line of one of its frames: the blocks around those lines are all
that has to be looked at. Code of torch is not: its handlers raise again what they catch.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exportguard.model_code import is_installed, is_models
from exportguard.repeats.asked import asked_operator
from exportguard.rewrites import scope
from exportguard.rewrites.managers import ending_handlers, leaves_at_last, may_swallow, names_of, resolved
from exportguard.source.walking import walked

#: What an export starts from, here, in torch 2.11 to 2.13 and for one operator: who calls these is no model.
_ROOTS = ("_run_watched", "_export", "trace_operator")

Block = ast.Try | ast.With


@dataclass(frozen=True)
class Handler:
    """A block of the user's that may catch an exception."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"the `{self.what}` at line {self.line} of {self.file}"


def handler_of(kind: type[BaseException]) -> Handler | None:
    """The innermost block of the model that may catch an exception of this class, if it is raised now."""
    found = (handler for frame in model_frames() if (handler := _handler_in(frame, kind)) is not None)
    return next(found, None)


#: Code that holds no block; the statement that it stands in is a frame of its own.
_EXPRESSIONS = frozenset(("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))


def is_caught() -> bool:
    """Whether a block of the model may catch some exception that is raised now.

    Who writes a `with` around a call of a package lets its exceptions pass, so that those of packages do not count.
    """
    asked = asked_operator()
    if asked is None:
        return any(map(_may_be_caught_in, model_frames()))
    return any(map(_may_be_caught_in, model_frames(end=asked.frame))) or asked.found(_is_caught_outside)


def _is_caught_outside(frame: types.FrameType) -> bool:
    return any(map(_may_be_caught_in, model_frames(frame)))


def _may_be_caught_in(frame: types.FrameType) -> bool:
    if frame.f_code.co_name in _EXPRESSIONS:
        return False
    blocks = _blocks_around(frame)
    if not blocks:
        return blocks is None and _by_bytecode(frame) is not None
    return any(_catching_part(block, frame, Exception) for block in blocks)


#: By the code that runs, which is kept for its identity's sake (to hash it takes as long as to read it), and the place
#: in it (to find its line takes long, too).
_AROUND: dict[tuple[int, int], tuple[types.CodeType, tuple[Block, ...] | None]] = {}
_MOST_PLACES = 2**14


def _blocks_around(frame: types.FrameType) -> tuple[Block, ...] | None:
    """The blocks around what a frame runs that may catch what is raised there; None if its file cannot be read."""
    place = id(frame.f_code), frame.f_lasti
    known = _AROUND.get(place)
    if known is None:
        if len(_AROUND) >= _MOST_PLACES:
            _AROUND.clear()
        known = _AROUND[place] = frame.f_code, _blocks_at(frame.f_code.co_filename, frame.f_lineno)
    return known[1]


def _blocks_at(file: str, line: int) -> tuple[Block, ...] | None:
    scopes = _blocks_of(file)
    if scopes is None:
        return None
    return tuple([block for block in _around(scopes, line) if isinstance(block, ast.Try) or not is_installed(file)])


@functools.lru_cache(maxsize=2**14)
def is_in_a_try(file: str, line: int) -> bool:
    """Whether a line of a file stands in a block that catches exceptions, or may, if its class is the user's."""
    scopes = _blocks_of(file)
    around = [] if scopes is None else [*_around(scopes, line)]
    return any(_catches(block, line) for block in around if isinstance(block, ast.Try) or not is_installed(file))


def _catches(block: Block, line: int) -> bool:
    is_in_body = block.body[0].lineno <= line <= (block.body[-1].end_lineno or line)
    return is_in_body and (isinstance(block, ast.With) or bool(_ending_handlers(block)) or _leaves_at_last(block))


def model_frames(start: types.FrameType | None = None, end: types.FrameType | None = None) -> Iterator[types.FrameType]:
    """What runs now of the model, the innermost frame first, up to where the export calls it.

    :param start: the innermost frame to look at, if not the caller's
    :param end: a frame that is not looked at, nor what is outside of it
    """
    frame: types.FrameType | None = start or sys._getframe(1)
    while frame is not None and frame is not end and frame.f_code.co_name not in _ROOTS:
        if is_models(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _handler_in(frame: types.FrameType, kind: type[BaseException]) -> Handler | None:
    if frame.f_code.co_name in _EXPRESSIONS:
        return None
    blocks = _blocks_of(frame.f_code.co_filename)
    if blocks is None:
        return _by_bytecode(frame)
    around = _around(blocks, frame.f_lineno)
    for block in around:
        what = _catching_part(block, frame, kind)
        if what:
            return Handler(frame.f_code.co_filename, block.lineno, what)
    return None


def _by_bytecode(frame: types.FrameType) -> Handler | None:
    """Without a source every entry of the exception table counts."""
    entries = dis._parse_exception_table(frame.f_code)  # type: ignore[attr-defined]  # CPython 3.11 and 3.12
    covered = any(entry.start <= frame.f_lasti < entry.end for entry in entries)
    return Handler(frame.f_code.co_filename, frame.f_lineno, "try") if covered else None


# ---------------------------------------------------------------------------------------------------- blocks of a file


@dataclass(frozen=True)
class _Scope:
    """A function of a file with the blocks that stand directly in it, outermost first."""

    lines: range
    blocks: tuple[Block, ...]


#: By file: its lines as they were read last, the same list until they are read again, and what they are.
_READ: dict[str, tuple[list[str], tuple[_Scope, ...] | None]] = {}


def _blocks_of(file: str) -> tuple[_Scope, ...] | None:
    lines = linecache.getlines(file)
    if not lines:
        return None
    read = _READ.get(file)
    if read is None or read[0] is not lines:
        read = _READ[file] = lines, _parsed("".join(lines))
    return read[1]


@functools.lru_cache(maxsize=32)
def _parsed(source: str) -> tuple[_Scope, ...] | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    functions = [tree, *(n for n in walked(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))]
    return tuple(_scope(function) for function in functions)


def _scope(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> _Scope:
    first = 0 if isinstance(node, ast.Module) else node.lineno
    last = sys.maxsize - 1 if isinstance(node, ast.Module) else node.end_lineno or node.lineno
    blocks = [n for n in scope.walk_scope(node.body) if isinstance(n, ast.Try | ast.With)]
    return _Scope(range(first, last + 1), tuple(blocks))


def _around(scopes: Sequence[_Scope], line: int) -> Iterator[Block]:
    """The blocks around a line in the innermost function that holds it, innermost first."""
    inner = min((s for s in scopes if line in s.lines), key=lambda s: len(s.lines))
    for block in reversed(inner.blocks):
        if block.lineno <= line <= (block.end_lineno or block.lineno):
            yield block


def _catching_part(block: Block, frame: types.FrameType, kind: type[BaseException]) -> str:
    """What of a block may end an exception at the frame's line; empty if nothing does."""
    line = frame.f_lineno
    if isinstance(block, ast.With):
        # A name that the block gives another value stood for something else when it was entered.
        names = dict.fromkeys(scope.assigned([block])), *names_of(frame)
        in_body = line >= block.body[0].lineno
        swallows = in_body and any(may_swallow(item.context_expr, names) for item in block.items)
        return f"with {ast.unparse(block.items[0].context_expr)}" if swallows else ""
    if block.finalbody and line < block.finalbody[0].lineno and _leaves_at_last(block):
        return "finally"
    in_body = block.body[0].lineno <= line <= (block.body[-1].end_lineno or line)
    handlers = _ending_handlers(block) if in_body else ()
    catches = any(_may_match(handler.type, frame, kind) for handler in handlers)
    return "except" if catches else ""


_ending_handlers = functools.lru_cache(maxsize=2**12)(ending_handlers)
_leaves_at_last = functools.lru_cache(maxsize=2**12)(leaves_at_last)


def _may_match(expression: ast.expr | None, frame: types.FrameType, kind: type[BaseException]) -> bool:
    if expression is None:
        return True
    if isinstance(expression, ast.Tuple):
        return any(_may_match(element, frame, kind) for element in expression.elts)
    caught = resolved(expression, names_of(frame))
    classes = caught if isinstance(caught, tuple) else (caught,)
    return any(not isinstance(c, type) or issubclass(kind, c) or issubclass(c, kind) for c in classes)
