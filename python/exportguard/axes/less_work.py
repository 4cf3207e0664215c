"""Sizes that show the same and take less to compute: `if batch >= 64` is not tried with large pictures."""

from __future__ import annotations

from collections.abc import Callable

from .expressions import Sizes
from .trace import Trace, meets

_DIVISORS = (2, 4, 8)


def with_less_work(trace: Trace, sizes: Sizes, answers: Callable[[Trace, Sizes], object]) -> Sizes:
    """Some sizes with smaller ones of all other axes beside them, where the model would compute for more than seconds.

    :param answers: what the model asks of sizes and how it is answered, which stays as it is
    """
    if trace.trial.is_little_work(trace.all_sizes(sizes)):
        return sizes
    wanted = answers(trace, sizes)
    candidates = (_divided(trace, sizes, divisor) for divisor in _DIVISORS)
    alike = [
        smaller
        for smaller in candidates
        if trace.is_in_domain(smaller) and meets(trace.known, trace, smaller) and answers(trace, smaller) == wanted
    ]
    is_little = (smaller for smaller in alike if trace.trial.is_little_work(trace.all_sizes(smaller)))
    found = next(is_little, alike[-1] if alike else sizes)
    return sizes if trace.trial.refuses(trace.all_sizes(found)) else found


def _divided(trace: Trace, sizes: Sizes, divisor: int) -> Sizes:
    others = (symbol for symbol in trace.free_symbols() if symbol not in sizes)
    return {**{symbol: max(trace.domain[symbol].low, trace.hints[symbol] // divisor) for symbol in others}, **sizes}
