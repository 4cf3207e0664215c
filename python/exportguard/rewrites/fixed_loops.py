"""Loops over a dynamic axis that torch.export unrolls: it makes the axis a constant, which is no error."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from exportguard import _core
from exportguard.rewrites.gathering import TYPED
from exportguard.rewrites.places import Place, places_among
from exportguard.source.walking import walked

_OF_MODULES = (
    *("accumulate", "chain", "combinations", "dropwhile", "filterfalse", "islice", "pairwise", "product", "reduce"),
    *("starmap", "takewhile", "count", "cycle", "repeat", "zip_longest"),
)
_METHODS = (*TYPED, "tolist", "unbind", "split", "split_with_sizes", "bit_length", "numel", *_OF_MODULES)
_FUNCTIONS = (
    *("range", "len", "enumerate", "zip", "reversed", "sum", "any", "all", "min", "max", "list", "tuple", "float"),
    *("int", "round", "map", "filter", "sorted", "iter", *_OF_MODULES),
)
_SEARCH = "exportguard.rewrites.automatic"  # what called the export


@dataclass
class FixedAxes:
    """What became constant while a program was traced, with the line that did it: axes, and the numbers that follow
    from them, as `n // 2`."""

    places: dict[str, Place | None] = field(default_factory=dict)
    numbers: dict[str, Place | None] = field(default_factory=dict)

    @property
    def loss(self) -> tuple[int, int]:
        """How many axes, and how many numbers beside them."""
        return len(self.places), len(self.numbers)

    def loops(self) -> list[Place]:
        """The lines that are the head of a `for`, or ask for a length."""
        found = [*self.places.values(), *self.numbers.values()]
        return [place for place in found if place is not None and _iterates(place)]


def _iterates(place: Place) -> bool:
    """Whether a line is the head of a loop, holds a comprehension or asks for a length."""
    lines = linecache.getlines(place.ran.co_filename)
    return any(first <= place.line <= last for first, last in _loops_of("".join(lines)))


@functools.lru_cache(maxsize=8)
def _loops_of(source: str) -> tuple[tuple[int, int], ...]:
    """The lines of what goes through something in a file, or decides when that ends."""
    nodes = _nodes_of(source)
    heads = [(n.lineno, n.iter.end_lineno or n.lineno) for n in nodes if isinstance(n, ast.For)]
    heads += [(n.lineno, n.test.end_lineno or n.lineno) for n in nodes if isinstance(n, ast.While)]
    heads += _ends_of(source)
    kinds = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
    heads += [(n.lineno, n.end_lineno or n.lineno) for n in nodes if isinstance(n, kinds)]
    heads += [(n.lineno, n.end_lineno or n.lineno) for n in nodes if isinstance(n, ast.Starred) or is_repetition(n)]
    return (*heads, *((n.lineno, n.end_lineno or n.lineno) for n in nodes if _counts(n)))


def _nodes_of(source: str) -> list[ast.AST]:
    try:
        return list(walked(ast.parse(source)))
    except SyntaxError:
        return []


@functools.lru_cache(maxsize=8)
def _ends_of(source: str) -> tuple[tuple[int, int], ...]:
    """The lines of tests within loops behind which the loop may be left."""
    loops = [node for node in _nodes_of(source) if isinstance(node, ast.For | ast.While)]
    tests = [node for loop in loops for node in walked(loop) if isinstance(node, ast.If) and _leaves(node)]
    return tuple((node.lineno, node.test.end_lineno or node.lineno) for node in tests)


def _leaves(node: ast.If) -> bool:
    return any(isinstance(part, ast.Break | ast.Return) for part in walked(node))


def is_repetition(node: ast.AST) -> TypeGuard[ast.BinOp]:
    """Whether it is `[a, b] * n`, or `n * [a, b]`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return isinstance(node.left, ast.List) or isinstance(node.right, ast.List)


def _counts(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    is_method = isinstance(function, ast.Attribute) and (function.attr in _METHODS or _is_of_math(function))
    return is_method or (isinstance(function, ast.Name) and function.id in _FUNCTIONS)


def _is_of_math(function: ast.Attribute) -> bool:
    return isinstance(function.value, ast.Name) and function.value.id == "math"


@contextmanager
def fixed_axes() -> Iterator[FixedAxes]:
    """Records, while it is open, which dynamic axes torch makes constants."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found = FixedAxes()
    original = ShapeEnv._set_replacement

    def set_replacement(self: Any, a: Any, tgt: Any, msg: str) -> None:
        axis = _axis_of(self, a) if tgt.is_number else None
        if axis is not None:
            found.places.setdefault(axis, _place_now())
        original(self, a, tgt, msg)

    asked: set[Any] = set()  # each is looked at once: a trace asks the same again and again
    evaluate_expr = ShapeEnv.evaluate_expr

    @functools.wraps(evaluate_expr)
    def evaluate(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        value = evaluate_expr(self, orig_expr, *args, **kwargs)
        if orig_expr not in asked:
            asked.add(orig_expr)
            if _is_of_sizes(self, orig_expr):
                place = _place_now()
                if not _is_test(orig_expr) or (place is not None and _ends_a_loop(place)):
                    found.numbers[str(orig_expr)] = place
        return value

    changes = _core.KeptChanges()
    changes.set_attribute(ShapeEnv, "_set_replacement", set_replacement)
    changes.set_attribute(ShapeEnv, "evaluate_expr", _under_its_file(evaluate))
    try:
        yield found
    finally:
        changes.undo()


def _under_its_file(function: Any) -> Any:
    """A function under the file name of what it wraps: torch 2.11 to 2.13 take the innermost frame outside of their own
    files for the user's, to tell an `assert` from a test."""
    function.__code__ = function.__code__.replace(co_filename=function.__wrapped__.__code__.co_filename)
    return function


def _is_of_sizes(shape_env: Any, expression: Any) -> bool:
    """Whether a question is for a number or a test that follows from sizes of inputs, and is not one of them."""
    symbols = getattr(expression, "free_symbols", ())
    is_derived = bool(symbols) and not expression.is_Symbol
    return is_derived and all(_axis_of(shape_env, symbol) is not None for symbol in symbols)


def _is_test(expression: Any) -> bool:
    # sympy's relations are no `is_Boolean`, though they are tests as `And` and `Or` are.
    return bool(expression.is_Boolean or expression.is_Relational)


def _ends_a_loop(place: Place) -> bool:
    """Whether a line is the head of a `while`, or a test that leaves a loop: they decide how many steps there are."""
    lines = linecache.getlines(place.ran.co_filename)
    is_while = 0 < place.line <= len(lines) and lines[place.line - 1].lstrip().startswith("while ")
    return is_while or any(first <= place.line <= last for first, last in _ends_of("".join(lines)))


def _axis_of(shape_env: Any, symbol: Any) -> str | None:
    sources = shape_env.var_to_sources.get(symbol) or []
    names = [source.name if isinstance(source.name, str) else source.name() for source in sources]
    return names[0] if names else None


def _place_now() -> Place | None:
    frame: types.FrameType | None = sys._getframe(2)
    running = []
    while frame is not None and frame.f_globals.get("__name__") != _SEARCH:
        running.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    places = places_among(running[::-1])
    return places[0] if places else None
