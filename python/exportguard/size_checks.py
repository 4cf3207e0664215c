"""Sizes that a file is told to refuse, in terms of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sympy
from sympy.core.relational import Relational
from torch.utils._sympy import functions

from .axes.bound import Answer
from .axes.expressions import Range
from .axes.limits import Limit
from .axes.monotone import sizes_that_break
from .axes.regions import place_of

_LARGEST = 200  # parts of one condition: to write it as "one of these, and one of those" may take as many squared

# What is computed with whole numbers in a file as Python does (torch 2.11 to 2.13).
_WHOLE = (
    sympy.Symbol, sympy.Integer, sympy.Add, sympy.Mul, sympy.Mod, functions.FloorDiv, functions.CleanDiv, functions.Mod,
    functions.PythonMod, functions.Max, functions.Min,
)  # fmt: skip
_OPERATORS: Mapping[type[sympy.Basic], str] = {
    sympy.Eq: "Equal", sympy.Ne: "Equal", sympy.Ge: "GreaterOrEqual", sympy.Gt: "Greater", sympy.Le: "LessOrEqual",
    sympy.Lt: "Less",
}  # fmt: skip

#: An operator of ONNX, both sides, and whether it is that or not.
Relation = tuple[str, str, str, bool]


class SizeCheck(NamedTuple):
    """A condition as users read it; relations of which one holds where it does; and where their symbols are sizes:
    symbol, input, axis."""

    condition: str
    any_of: Sequence[Relation]
    sizes: Sequence[tuple[str, str, int]]


def size_checks(limits: Sequence[Limit], names: Sequence[str], has: Callable[[Answer], bool]) -> list[SizeCheck]:
    """The checks of those limits that are conditions on whole numbers; `names` are those of all leaves of the inputs,
    and `has` tells which answers a file has."""
    found: dict[tuple[Relation, ...], SizeCheck] = {}
    for limit in limits:
        holds = limit.settled(has).replace(lambda part: isinstance(part, Relational), _of_whole_numbers)
        parts = [part for part in sympy.And.make_args(holds) if _size_of(part) <= _LARGEST]
        for part in itertools.chain(*(sympy.And.make_args(sympy.to_cnf(part)) for part in parts)):
            relations = [_relation(one) for one in sympy.Or.make_args(part)]
            any_of = tuple(relation for relation in relations if relation is not None)
            if len(any_of) == len(relations):
                found[any_of] = SizeCheck(limit.told, any_of, _sizes(part, names))
    return [*found.values()]


def _of_whole_numbers(condition: sympy.Basic) -> sympy.Basic:
    """A relation of floats as the sizes at which it holds, `int(0.3 * float(n)) != 0` as `n > 3`, where it changes its
    answer at few of them."""
    if all(map(_is_whole, condition.args)) or len(condition.free_symbols) != 1:
        return condition
    (symbol,) = condition.free_symbols
    breaking = sizes_that_break(condition, {symbol: Range(0, None)})
    if breaking is None:
        return condition
    outside = [
        sympy.Or(symbol < part.low, sympy.false if part.high is None else symbol > part.high) for part in breaking
    ]
    return sympy.And(*outside)


def _size_of(condition: sympy.Basic) -> int:
    return sum(1 for _ in sympy.preorder_traversal(condition))


def _sizes(condition: sympy.Basic, names: Sequence[str]) -> list[tuple[str, str, int]]:
    places = {str(symbol): place_of(symbol) for symbol in condition.free_symbols}
    return [(symbol, names[place.leaf], place.axis) for symbol, place in sorted(places.items())]


def _relation(condition: sympy.Basic) -> Relation | None:
    """None if it is no relation of whole numbers."""
    if not isinstance(condition, Relational) or not all(map(_is_whole, condition.args)):
        return None
    first, second = map(str, condition.args)
    return _OPERATORS[condition.func], first, second, not isinstance(condition, sympy.Ne)


def _is_whole(expression: sympy.Basic) -> bool:
    if isinstance(expression, sympy.Pow):
        base, power = expression.args
        return bool(power.is_Integer and power.is_positive) and _is_whole(base)
    return isinstance(expression, _WHOLE) and all(map(_is_whole, expression.args))
