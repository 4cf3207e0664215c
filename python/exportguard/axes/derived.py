"""What a `Dim` that follows from another one says of sizes: `8 * Dim("k")` are multiples of 8.

torch.export tells its trace nothing of it before the end, and compares it with what the trace found then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
from torch.export import Dim

from exportguard.dynamic_shapes import Axis, is_derived

#: How often a size has that of its root, and how much more.
_Affine = tuple[int, int]


def follow(axes: Iterable[tuple[Axis, sympy.Symbol]]) -> tuple[Mapping[sympy.Symbol, sympy.Expr], list[sympy.Basic]]:
    """The symbols of axes that follow from those of others, and what else holds of the symbols.

    :param axes: what was asked for, and the symbol that a trace has for it

    >>> k, s, t = Dim("k"), *sympy.symbols("s t", integer=True)
    >>> follow([(8 * k, s), (k, t)]), follow([(8 * k + 1, s)])
    (({s: 8*t}, []), ({}, [Eq(Mod(s + 7, 8), 0)]))
    """
    axes = list(axes)
    roots = {axis.__name__: symbol for axis, symbol in axes if isinstance(axis, Dim) and not is_derived(axis)}
    same, conditions = dict[sympy.Symbol, sympy.Expr](), list[sympy.Basic]()
    first = dict[str, tuple[_Affine, sympy.Symbol]]()
    derived: list[tuple[str, _Affine, sympy.Symbol]] = [
        (axis.root.__name__, _affine(axis), symbol)
        for axis, symbol in axes
        if isinstance(axis, Dim) and hasattr(axis, "root")  # a `_StaticDim` has none
    ]
    for root, (times, more), symbol in sorted(derived, key=lambda entry: (entry[1], str(entry[2]))):
        if root in roots:
            same[symbol] = times * roots[root] + more
        elif root not in first:
            first[root] = (times, more), symbol
            conditions += [sympy.Eq(sympy.Mod(symbol - more, times), 0)] if times > 1 else []
        elif symbol != first[root][1]:
            (base_times, base_more), base = first[root]
            if times % base_times == 0:
                same[symbol] = times // base_times * (base - base_more) + more
            else:
                conditions.append(sympy.Eq(base_times * (symbol - more), times * (base - base_more)))
    return same, [condition for condition in conditions if condition != sympy.true]


def _affine(axis: Any) -> _Affine:
    """torch 2.11 to 2.13: the `fn` of a derived `Dim` makes its size of that of the root, with one product and sum."""
    return axis.fn(1) - axis.fn(0), axis.fn(0)
