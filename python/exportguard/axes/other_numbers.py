"""Sizes to try where a model makes a number of Python of one: `int(n / 16)`."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence

import sympy

from .expressions import Range, Sizes
from .trace import Trace

_EACH_UP_TO = 130  # the size up to which those are tried that a model makes another number of
_LARGEST = 2**16  # the size up to which one is looked for of which it makes a certain number


def sizes_of_other_numbers(trace: Trace, condition: sympy.Basic, at_hand: Sequence[int]) -> Iterator[Sizes]:
    """Sizes of which the model makes other numbers than the one that the trace has: `int(n / 16)` is one of Python, and
    torch is asked nothing where the model compares it.

    There is a size for each number that small sizes lead to, if the program is short, and for those that the model has
    at hand, `at_hand`, and the next ones, `int(n / 16) > 30`.
    """
    if not isinstance(condition, sympy.Eq) or not condition.rhs.is_number or condition.lhs.is_Symbol:
        return
    for symbol in sorted(condition.free_symbols & {*trace.free_symbols()}, key=str):

        def number_of(size: int, symbol: sympy.Symbol = symbol) -> float | None:
            value = trace.value(condition.lhs, trace.all_sizes({symbol: size}))
            return None if value is None else float(value)

        ends = trace.domain[symbol]
        tried = {float(condition.rhs)}
        for size in range(ends.low, min(ends.high or _EACH_UP_TO, _EACH_UP_TO) + 1) if trace.trial.may_try_many else ():
            number = number_of(size)
            if number is not None and number not in tried:
                tried.add(number)
                yield {symbol: size}
        for number in (entry for known in at_hand for entry in (known, known + 1)):
            if number not in tried:
                tried.add(number)
                yield from ({symbol: size} for size in _sizes_of(number, number_of, ends))


def _sizes_of(number: int, number_of: Callable[[int], float | None], ends: Range) -> Iterator[int]:
    """The least size of which a number is made, where larger sizes make larger numbers; none if there is none."""
    highest = min(ends.high or _LARGEST, _LARGEST)
    sizes = range(ends.low, highest + 1)
    at = bisect.bisect_left(sizes, True, key=lambda size: (number_of(size) or 0) >= number)
    if at < len(sizes) and number_of(sizes[at]) == number:
        yield sizes[at]
