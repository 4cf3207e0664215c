"""`and`, `or`, `not`, comparisons and conversions of what may be tensor data."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.answers import is_in
from exportguard.rewrites.collected import truth_of
from exportguard.rewrites.conditional import Condition, Run
from exportguard.rewrites.data import as_flag, as_predicate, depends_on_data
from exportguard.rewrites.ends_of_runs import nothing_unless
from exportguard.rewrites.numbers import as_number, is_not_negative, number_tensor
from exportguard.rewrites.quotients import whole_quotient
from exportguard.rewrites.raising import require_no_handler
from exportguard.rewrites.recording import Captured
from exportguard.rewrites.state import Snapshot

_BEYOND_INT64 = 2.0**63  # no number of a graph is as large as that, and Python makes none of infinity or NaN

_ROUNDED: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(math, name) for name in ("trunc", "floor", "ceil")},
    "round": builtins.round,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": is_in,
    "NotIn": lambda a, b: not_(is_in(a, b)),
}


def compare(operators: Sequence[str], *operands: Callable[[], Any]) -> Any:
    """`a < b <= c`: each operand is read once, and no further than Python would."""
    left = operands[0]()
    result: Any = True
    for name, read in zip(operators, operands[1:], strict=True):
        right = read()
        link = _COMPARISONS[name](left, right)
        result = _combine(torch.logical_and, result, link) if depends_on_data(result) else link
        if not depends_on_data(result) and not result:
            return result
        left = right
    return result


def known(item: object) -> Callable[[], Any]:
    """An operand that was read already."""
    return lambda: item


def and_(*operands: Callable[[], Any]) -> Any:
    """`a and b and …` that is tested; operands are read from left to right, and no further than Python would."""
    return _tested(operands, is_or=False)


def or_(*operands: Callable[[], Any]) -> Any:
    """`a or b or …` that is tested."""
    return _tested(operands, is_or=True)


def _tested(operands: Sequence[Callable[[], Any]], *, is_or: bool) -> Any:
    current = truth_of(operands[0]())
    for read in operands[1:]:
        if depends_on_data(current):
            current = _either(current, read) if is_or else _both(current, read)
        elif bool(current) == is_or:
            return current
        else:
            current = truth_of(read())
    return current


def _both(current: object, read: Callable[[], Any]) -> Any:
    if _leaves_no_trace(read):
        return _combine(torch.logical_and, current, truth_of(read()))
    return Condition(lambda: as_flag(truth_of(read())), lambda: False, ("the value",), 0).build(as_predicate(current))


def _either(current: object, read: Callable[[], Any]) -> Any:
    if _leaves_no_trace(read):
        return _combine(torch.logical_or, current, truth_of(read()))
    return Condition(lambda: True, lambda: as_flag(truth_of(read())), ("the value",), 0).build(as_predicate(current))


def _leaves_no_trace(read: Callable[[], Any]) -> bool:
    """Whether an operand may be read although Python would not: it changes nothing and cannot fail."""
    captured = Captured()
    aliases = aliases_now()
    before = aliases.stale_now()
    run = Run(read, Snapshot(functions=[read]), captured)
    aliases.set_stale(before)
    is_pure = not run.changes and not any(captured.mark_written()) and not run.checks
    return run.error is None and is_pure and not captured.may_fail


def and_value(*operands: Callable[[], Any], line: int = 0) -> Any:
    """`a and b and …` whose value is used: the first operand that is not true, or the last."""
    return _valued(operands, line, is_or=False)


def or_value(*operands: Callable[[], Any], line: int = 0) -> Any:
    """`a or b or …` whose value is used: the first operand that is true, or the last."""
    return _valued(operands, line, is_or=True)


def _valued(operands: Sequence[Callable[[], Any]], line: int, *, is_or: bool) -> Any:
    current, rest = operands[0](), operands[1:]
    if not rest:
        return current
    truth = truth_of(current)
    if not depends_on_data(truth):
        return current if bool(truth) == is_or else _valued(rest, line, is_or=is_or)
    branches = [lambda: current, lambda: _valued(rest, line, is_or=is_or)]
    then, orelse = branches if is_or else reversed(branches)
    return Condition(then, orelse, ("the value",), line).build(as_predicate(truth))


def not_(operand: object) -> Any:
    """`not a`."""
    operand = truth_of(operand)
    if not depends_on_data(operand):
        return not operand
    if not isinstance(operand, torch.Tensor):
        return torch.sym_not(as_predicate(operand))  # type: ignore[no-untyped-call]
    return as_number(torch.logical_not(operand))


def bool_(item: object) -> Any:
    """`bool(item)`; of tensor data a bool tensor."""
    item = truth_of(item)
    return as_number(as_flag(item)) if depends_on_data(item) else bool(item)


def int_(item: Any) -> Any:
    """`int(item)`; of tensor data and of sizes a symbolic number."""
    if isinstance(item, torch.SymInt):
        return item
    if isinstance(item, torch.SymFloat):
        return whole_number(item, "trunc")
    if not isinstance(item, torch.Tensor) or not depends_on_data(item):
        return int(item)
    truncated = item.to(torch.int64).reshape(())
    if item.is_floating_point():
        require_no_handler((ValueError, OverflowError), "int(…) of NaN or infinity")
        truncated = truncated + nothing_unless(item.reshape(()).abs() < _BEYOND_INT64)
    whole = truncated.item()
    if is_not_negative(item):
        torch._check(whole >= 0)  # type: ignore[no-untyped-call]
    return whole


def whole_number(number: Any, name: str) -> Any:
    """A whole number made of one of sizes: torch knows quotients of sizes, and no products with fractions.

    :param name: what rounds: `trunc`, `floor`, `ceil` or `round`
    """
    quotient = whole_quotient(number, name)
    if quotient is not None:
        return quotient
    expression = number.node.expr
    if not expression.atoms(sympy.Float):
        return _ROUNDED[name](number)
    double = torch.scalar_tensor(number, dtype=torch.float64)
    whole = getattr(torch, name)(double).to(torch.int64).item()
    if number.node.shape_env.bound_sympy(expression).lower >= 0:
        torch._check(whole >= 0)  # type: ignore[no-untyped-call]
    return whole


def float_(item: Any) -> Any:
    """`float(item)`; of sizes a symbolic number, of tensor data a tensor of rank 0 in double precision, as Python's
    numbers are."""
    if not depends_on_data(item):
        is_of_sizes = isinstance(item, torch.SymInt | torch.SymFloat)
        return torch.sym_float(item) if is_of_sizes else float(item)  # type: ignore[no-untyped-call]
    if isinstance(item, torch.Tensor):
        return as_number(item.reshape(()).to(torch.float64))
    return as_number(number_tensor(item).to(torch.float64))


def item(tensor: Any) -> Any:
    """`tensor.item()`, which leaves what is not an integer a tensor of rank 0."""
    if not isinstance(tensor, torch.Tensor) or not depends_on_data(tensor) or tensor.dtype.is_complex:
        return tensor.item()
    if tensor.dtype == torch.bool:
        return as_number(tensor.reshape(()))
    return float_(tensor) if tensor.is_floating_point() else int_(tensor)


def _combine(function: Callable[..., torch.Tensor], a: object, b: object) -> torch.Tensor:
    return function(as_flag(a), as_flag(b))
