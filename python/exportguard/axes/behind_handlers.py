"""What a model does where it catches an error of its sizes.

What stands for tensors in a trace checks less than they do, so that no question says that an operator in a `try` stops
at other sizes. A program of a model that has one is therefore run beside it at a few sizes of each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sympy
import torch
from torch.fx import Node

from exportguard.model_code import is_users
from exportguard.rewrites.catching import is_in_a_try

from .bound import AxisBound, Kind
from .forms import line_of, places_of
from .trace import Trace
from .trial import Outcome

_SIZES = (1, 2, 3, 4, 5, 7, 8, 17)


def bounds_behind_handlers(trace: Trace, nodes: Iterable[Node]) -> Iterator[AxisBound]:
    """One for each axis at a size of which the program is wrong, if the model may catch errors of some nodes."""
    within: dict[str, bool] = {}  # by the calls that made a node, which it shares with many others
    line = next((line_of(node) for node in nodes if _takes_sizes(node) and _may_be_caught(node, within)), "")
    for symbol in trace.free_symbols() if line else ():
        wrong = _wrong_size(trace, symbol)
        if wrong is not None:
            yield AxisBound(
                condition=f"{trace.worded(symbol)} other than {wrong}",
                symbols=frozenset([str(symbol)]),
                kind=Kind.WRONG,
                line=line,
                sizes=trace.told({symbol: wrong}),
                point=trace.by_name({symbol: wrong}),
            )


def _wrong_size(trace: Trace, symbol: sympy.Symbol) -> int | None:
    if trace.trial.outcome(trace.all_sizes({})) == Outcome.DIFFERS:  # it stops where the model catches an error
        return trace.hints[symbol]
    sizes = (size for size in _SIZES if trace.domain[symbol].holds(size) and trace.may_be(symbol, size))
    return next((size for size in sizes if trace.differs({symbol: size})), None)


def _takes_sizes(node: Node) -> bool:
    values = [given.meta.get("val") for given in node.all_input_nodes]
    sizes = (value.shape if isinstance(value, torch.Tensor) else [value] for value in values)
    return any(isinstance(size, torch.SymInt | torch.SymFloat) for each in sizes for size in each)


def _may_be_caught(node: Node, within: dict[str, bool]) -> bool:
    calls = node.meta.get("stack_trace") or ""
    if calls not in within:
        within[calls] = any(is_users(file) and is_in_a_try(file, line) for file, line in places_of(node))
    return within[calls]
