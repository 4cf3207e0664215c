"""Tests of sizes that have one answer only for the sizes that were asked for: `if n > 4` of `Dim("n", min=5)`.

torch answers them without a guard. A file answers at other sizes, too, and then it is not what the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sympy

from exportguard.dynamic_shapes import ends_of

from .bound import AxisBound, Kind
from .derived import follow
from .expressions import Range
from .implication import Answer, decide
from .trace import Trace, asked_domain, axes_asked, with_relations

_LEAST = 2  # that a trace has; what is asked of a size of 1 is looked at by itself

Domain = Mapping[sympy.Symbol, Range]


def bounds_of_asked_ends(trace: Trace) -> list[AxisBound]:
    """What Python code of the model asked, with the one answer that it has between the ends that were asked for, and
    that sizes are the multiples that were."""
    axes = [*axes_asked(trace.traced, trace.example.shapes)]
    _, multiples = follow((shape.axes[axis], symbol) for shape, axis, symbol in axes)
    ends = {symbol: ends_of(shape.axes[axis]) for shape, axis, symbol in axes}
    limited = {symbol for symbol, (low, high) in ends.items() if (low or 0) > _LEAST or high is not None}
    if not limited and not multiples:
        return []
    domain = asked_domain(trace.traced, trace.example.shapes)
    counted = [*_counted(trace, domain)]
    as_counted = {symbol: size for symbol, size, _, _ in counted}
    narrow: Domain = {**domain, **{root: ends for _, _, root, ends in counted}}
    wide: Domain = {symbol: Range(_LEAST if symbol in domain else 0) for symbol in narrow}

    def is_told_by_ends(test: sympy.Basic) -> bool:
        known = test.xreplace(as_counted)
        if not test.free_symbols or not known.free_symbols <= narrow.keys():
            return False
        is_told = decide(known, narrow).answer == Answer.PROVED
        return is_told and (known == sympy.true or decide(known, wide).answer != Answer.PROVED)

    tests = {with_relations(trace, entry.condition): entry.line for entry in trace.decisions if entry.is_test}
    found = [(test, line) for test, line in tests.items() if is_told_by_ends(test)]
    asked = [(condition, "") for condition in multiples if condition not in tests]
    return [_bound(trace, condition, line) for condition, line in (*found, *asked)]


def _bound(trace: Trace, condition: sympy.Basic, line: str) -> AxisBound:
    return AxisBound(
        condition=trace.worded(condition, is_relation=True),
        symbols=frozenset(map(str, condition.free_symbols)),
        kind=Kind.ASKED,
        line=line,
        holds=condition,
    )


def _counted(trace: Trace, domain: Domain) -> Iterator[tuple[sympy.Symbol, sympy.Expr, sympy.Symbol, Range]]:
    """The axes that have multiples of what a `Dim` counts, what torch has in their place, and that with its range."""
    for symbol, ends in domain.items():
        size = trace.shape_env.replacements.get(symbol, symbol)
        (root,) = size.free_symbols if len(size.free_symbols) == 1 else (symbol,)
        step = size.coeff(root)
        if root not in domain and step.is_Integer and step > 0:
            rest = size - step * root
            yield symbol, size, root, Range(1, None if ends.high is None else int((ends.high - rest) // step))
