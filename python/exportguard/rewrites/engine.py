"""Source → ast → rules → function: the mechanics that every rewriting rule shares.

How a source is read and compiled is for `exportguard.source` to know.
"""

from __future__ import annotations

import ast
import difflib
import functools
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from exportguard.source.compiling import compiled
from exportguard.source.editing import keep_sources, sources_of
from exportguard.source.reading import copied, definition_of, text_of
from exportguard.source.walking import located, walked

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
    keeps_sizes: bool = False  # whether what makes a size a constant is worth a rewriting by itself
    tells_nones: bool = False  # whether a variable that may be None gets another one that says so
    loops: tuple[range, ...] = ()  # the lines of each loop of the source
    places: Counter[str] = field(default_factory=Counter)  # how many constructs were named by their place

    def place(self, node: ast.stmt) -> str:
        """A name by the place of a construct, which no other one has: what rules make may share a place."""
        place = f"{node.lineno}_{node.col_offset}"
        self.places[place] += 1
        count = self.places[place]
        return place if count == 1 else f"{place}_{count}"

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
    applied: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        return bool(self.applied)

    @property
    def original_source(self) -> str:
        """What was rewritten: without comments if anything was."""
        return self._sources[0]

    @property
    def source(self) -> str:
        """What it became."""
        return self._sources[1]

    @functools.cached_property
    def _sources(self) -> tuple[str, str]:
        kept = sources_of(self.func) if self.is_changed else None
        return kept or (text_of(self.original),) * 2

    def diff(self, context: int = 3) -> str:
        """A unified diff of the two sources."""
        lines = difflib.unified_diff(
            self.original_source.splitlines(), self.source.splitlines(), "original", "rewritten", lineterm="", n=context
        )
        return "\n".join(lines)


def rewrite_function(
    function: types.FunctionType,
    rules: Sequence[Rule],
    keep: Callable[[ast.AST], bool],
    *,
    absorbs: bool = False,
    keeps_sizes: bool = False,
    tells_nones: bool = False,
) -> RewrittenMethod:
    """Applies the rules in order to a plain function; one that they made already is left as it is."""
    node = _definition(function)
    before = copied(node)
    unit = Unit(node, function, keep, [], absorbs, keeps_sizes, tells_nones, _loops_of(node))
    for rule in () if is_rewritten(function.__code__) else rules:
        rule(unit)
    if not unit.applied:
        return RewrittenMethod(original=function, func=function, applied=())
    new = compile_function(located(unit.node), function)
    keep_sources(new, before, unit.node)
    return RewrittenMethod(original=function, func=new, applied=tuple(unit.applied))


def _loops_of(node: ast.AST) -> tuple[range, ...]:
    loops = (n for n in walked(node) if isinstance(n, ast.For | ast.While))
    return tuple(range(loop.lineno, (loop.end_lineno or loop.lineno) + 1) for loop in loops)


def is_rewritten(code: types.CodeType) -> bool:
    """Whether `compile_function` made the code."""
    return RUNTIME_NAME in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)


def _definition(function: types.FunctionType) -> ast.FunctionDef:
    """The definition without its decorators, which stay around the rewritten function."""
    node = definition_of(function)
    node.decorator_list = []
    return node


def compile_function(
    node: ast.FunctionDef, original: types.FunctionType, file: str | None = None
) -> types.FunctionType:
    """The function that `node` defines, in the surroundings of `original`, which can run its code.

    `file` is where the node stands, if it is not the file of the original.
    """
    body = [_import_of_runtime(node), *node.body]
    with_runtime = ast.FunctionDef(node.name, node.args, body, decorator_list=[], type_params=[])  # type: ignore[call-arg]
    return compiled(ast.copy_location(with_runtime, node), original, file=file, keeps_free=True)


def _import_of_runtime(where: ast.AST) -> ast.stmt:
    names = [ast.alias("runtime", RUNTIME_NAME)]
    return ast.copy_location(ast.ImportFrom(__package__, names, 0), where)
