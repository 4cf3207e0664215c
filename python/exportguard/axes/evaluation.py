"""Expressions of sizes as torch writes them, computed for given sizes as Python computes them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.utils._sympy.printers import PythonPrinter

from exportguard import _core

from .expressions import Sizes
from .size_steps import steps_of


class Evaluation:
    """An expression that is evaluated for many sizes."""

    def __init__(self, expression: sympy.Basic, symbols: Sequence[sympy.Symbol]) -> None:
        """`symbols` are those of the expression."""
        self._symbols = symbols
        self._function = _compiled(expression, tuple(symbols))
        self._expression = expression

    def __call__(self, sizes: Sizes) -> Any:
        """A number or a bool; None where it has no value, or none that is known."""
        return self.at([sizes[symbol] for symbol in self._symbols])

    def at(self, sizes: Sequence[int]) -> Any:
        """The same, of sizes in the order of the symbols."""
        return _value(self._function, sizes)

    @property
    def condition(self) -> _core.SizeCondition | None:
        """The same for many sizes at once; None if it is no condition, or has what only Python computes."""
        return _condition(self._expression, tuple(self._symbols))


@dataclass(frozen=True)
class Points:
    """Sizes of several symbols, in their order: all combinations of what each may be, that of the last one changing
    first, or one row after the other."""

    spans: Sequence[Sequence[int]]
    is_combined: bool = True

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*self.spans) if self.is_combined else zip(*self.spans, strict=True)


def points_where(
    evaluations: Sequence[Evaluation], points: Points, wanted: bool | None = True
) -> Iterator[tuple[int, ...]]:
    """The points at which each of them is `wanted`, None where it has no value."""
    compiled = [(evaluation, evaluation.condition) for evaluation in evaluations]
    conditions = [condition for _, condition in compiled if condition is not None]
    rest = [evaluation for evaluation, condition in compiled if condition is None]
    found = _found(conditions, points, wanted) if conditions else iter(points)
    return (point for point in found if all(evaluation.at(point) is wanted for evaluation in rest))


def _found(conditions: Sequence[_core.SizeCondition], points: Points, wanted: bool | None) -> Iterator[tuple[int, ...]]:
    search = _core.SizeSearch(conditions, points.spans, wanted, points.is_combined)
    while found := search.more():
        yield from found


@functools.lru_cache(maxsize=4096)
def _condition(expression: sympy.Basic, symbols: tuple[sympy.Symbol, ...]) -> _core.SizeCondition | None:
    function, steps = _compiled(expression, symbols), steps_of(expression, symbols)
    if function is None or steps is None or not symbols:
        return None
    return _core.SizeCondition(steps, len(symbols), functools.partial(_value, function))


def _value(function: Callable[..., Any] | None, sizes: Sequence[int]) -> Any:
    if function is None:
        return None
    try:
        return function(*sizes)
    except (ArithmeticError, NameError, TypeError, ValueError):
        return None


_BUILTINS = {"abs": abs, "float": float, "int": int, "max": max, "min": min, "round": round}


class _OfNumbers(PythonPrinter):
    """Sizes as Python's floats, and what `math` makes of them, which torch 2.11 to 2.13 print for a symbolic trace."""

    def _print_ToFloat(self, expression: sympy.Expr) -> str:  # noqa: N802 - by the name that the printer looks for
        return f"float({self._print(expression.args[0])})"

    def _print_TruncToFloat(self, expression: sympy.Expr) -> str:  # noqa: N802 - as above
        return f"float(math.trunc({self._print(expression.args[0])}))"

    def _helper_sqrt(self, expr: sympy.Expr) -> str:
        return f"math.sqrt({self._print(expr)})"


class _Lines(_OfNumbers):
    """Each part of an expression is printed once, as a line that gives it a name: a size behind four convolutions has
    that behind three in several places."""

    def __init__(self) -> None:
        super().__init__({"order": "none"})
        self.lines: list[str] = []
        self._names: dict[sympy.Basic, str] = {}

    def _print(self, expr: Any, **kwargs: Any) -> str:
        if not isinstance(expr, sympy.Basic) or expr.is_Atom:
            return str(super()._print(expr, **kwargs))
        if expr not in self._names:
            text = super()._print(expr, **kwargs)
            self._names[expr] = f"x{len(self._names)}"
            self.lines.append(f"{self._names[expr]} = {text}")
        return self._names[expr]


@functools.lru_cache(maxsize=4096)
def _compiled(expression: sympy.Basic, symbols: tuple[sympy.Symbol, ...]) -> Callable[..., Any] | None:
    if isinstance(expression, sympy.And | sympy.Or):  # what decides needs no value of what stands behind it
        parts = [_compiled(part, symbols) for part in expression.args]
        known = [part for part in parts if part is not None]
        return None if len(known) < len(parts) else _joined(known, all if isinstance(expression, sympy.And) else any)
    plain = {symbol: sympy.Symbol(f"v{number}", integer=True) for number, symbol in enumerate(symbols)}
    names = ", ".join(map(str, plain.values()))
    chosen_within = expression.has(sympy.And, sympy.Or, sympy.Piecewise, sympy.ITE)
    printer = _OfNumbers({"order": "none"}) if chosen_within else _Lines()
    try:
        value = printer.doprint(expression.xreplace(plain))
        lines = [*getattr(printer, "lines", ()), f"return {value}"]
        code = compile("\n    ".join([f"def guard({names}):", *lines]), "<guard>", "exec")
    except (NotImplementedError, SyntaxError, TypeError):
        return None
    defined: dict[str, Any] = {"math": math, "__builtins__": _BUILTINS}
    exec(code, defined)
    function: Callable[..., Any] = defined["guard"]
    return function


def _joined(parts: Sequence[Callable[..., Any]], join: Callable[[Iterable[Any]], bool]) -> Callable[..., Any]:
    return lambda *sizes: join(part(*sizes) for part in parts)
