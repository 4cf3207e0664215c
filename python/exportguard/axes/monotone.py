"""Guards on expressions that only grow with each size, or only shrink: they are decided at the ends of the domain.

The interval of an expression is computed operand by operand. Quotients by constants, sums, and products of what is
never negative keep the direction in which their operands go; remainders keep none, but lie below their divisor. So do
whole parts of floats, `int(0.7 * float(n))`: an operation of floats is rounded, which turns no order round, and at the
ends it is computed as Python does.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy

from .evaluation import Evaluation
from .expressions import Domain, Range

FARTHEST = 2**48  # sizes beyond it are not looked for

_Number = int | float  # infinite where there is no end


@dataclass(frozen=True)
class Tendency:
    """The least and the largest value of an expression on a domain, or numbers beyond them.

    `direction` is 1 if it does not shrink as any size grows, -1 if it does not grow, 0 if it is a constant, None if
    that is not known.
    """

    low: _Number
    high: _Number
    direction: int | None


_UNKNOWN = Tendency(-math.inf, math.inf, None)


def tendency(expression: sympy.Basic, domain: Domain) -> Tendency:
    """Where an expression of sizes lies and how it goes."""
    if expression.is_Integer:
        return Tendency(int(expression), int(expression), 0)
    if isinstance(expression, sympy.Symbol):
        ends = domain.get(expression, Range())
        return Tendency(ends.low, math.inf if ends.high is None else ends.high, 1)
    name = type(expression).__name__
    if name in _WHOLE_PARTS:
        return _whole_part(_WHOLE_PARTS[name], _of_floats(expression.args[0], domain))
    rule = _RULES.get(name)
    return _UNKNOWN if rule is None else rule([tendency(argument, domain) for argument in expression.args])


def _of_floats(expression: sympy.Basic, domain: Domain) -> Tendency:
    """As above, of what is computed with floats."""
    if expression.is_Float:
        return Tendency(float(expression), float(expression), 0)
    name = type(expression).__name__
    if name == "ToFloat":
        whole = tendency(expression.args[0], domain)
        return Tendency(float(whole.low), float(whole.high), whole.direction)
    if name not in _OF_FLOATS:
        return _UNKNOWN
    of_operand = tendency if name == "IntTrueDiv" else _of_floats
    a, b = (of_operand(argument, domain) for argument in expression.args)
    return _operated(_OF_FLOATS[name], a, b)


def _operated(compute: Callable[[_Number, _Number], _Number], a: Tendency, b: Tendency) -> Tendency:
    """A sum of two that go in one direction, or a product with, or a quotient by, a constant above zero."""
    if compute is operator.mul and a.direction == 0:
        a, b = b, a
    if compute is not operator.add and (b.direction != 0 or b.low <= 0):
        return _UNKNOWN
    low, high = compute(a.low, b.low), compute(a.high, b.high)
    return _UNKNOWN if math.isnan(low + high) else Tendency(low, high, _direction_of((a, b)))


def _whole_part(rounded: Callable[[float], int], of: Tendency) -> Tendency:
    low, high = (end if math.isinf(end) else rounded(end) for end in (of.low, of.high))
    return Tendency(low, high, of.direction)


def always_holds(guard: sympy.Basic, domain: Domain) -> bool:
    """Whether the interval of the guard's two sides alone says that it holds on the whole domain."""
    test = _ALWAYS.get(type(guard))
    return test is not None and test(tendency(guard.args[0] - guard.args[1], domain))


def sizes_that_break(guard: sympy.Basic, domain: Domain) -> list[Range] | None:
    """All sizes of a guard's only symbol for which it is false; None if the guard is of another kind."""
    found = _signs(guard, domain)
    if found is None:
        return None
    below, zero, above = found
    parts = {"below": below, "zero": zero, "above": above}
    return [part for name, part in parts.items() if name in _BREAKING[type(guard)] and not _is_empty(part)]


def sizes_that_hold(guard: sympy.Basic, domain: Domain) -> Range | None:
    """The range of a guard's only symbol for which it is true, if that is one range and is not empty."""
    found = _signs(guard, domain)
    if found is None:
        return None
    kept = [part for name, part in zip(_SIGNS, found, strict=True) if name not in _BREAKING[type(guard)]]
    return one_range([part for part in kept if not _is_empty(part)])


def one_range(parts: Sequence[Range]) -> Range | None:
    """The range that some make together, none of which is empty; None if there are none, or sizes between them."""
    ranges = sorted(parts, key=lambda part: part.low)
    is_one = all(one.high is not None and one.high + 1 == next_.low for one, next_ in itertools.pairwise(ranges))
    return Range(ranges[0].low, ranges[-1].high) if ranges and is_one else None


_SIGNS = ("below", "zero", "above")
_BREAKING: dict[type, tuple[str, ...]] = {
    sympy.Equality: ("below", "above"),
    sympy.Unequality: ("zero",),
    sympy.GreaterThan: ("below",),
    sympy.StrictGreaterThan: ("below", "zero"),
    sympy.LessThan: ("above",),
    sympy.StrictLessThan: ("above", "zero"),
}
_ALWAYS: dict[type, Callable[[Tendency], bool]] = {
    sympy.Equality: lambda range_: range_.low == range_.high == 0,
    sympy.Unequality: lambda range_: range_.low > 0 or range_.high < 0,
    sympy.GreaterThan: lambda range_: range_.low >= 0,
    sympy.StrictGreaterThan: lambda range_: range_.low > 0,
    sympy.LessThan: lambda range_: range_.high <= 0,
    sympy.StrictLessThan: lambda range_: range_.high < 0,
}


def _signs(guard: sympy.Basic, domain: Domain) -> tuple[Range, Range, Range] | None:
    """The sizes at which the difference of the guard's sides is below zero, zero, and above."""
    symbols = list(guard.free_symbols)
    if type(guard) not in _BREAKING or len(symbols) != 1:
        return None
    difference = guard.args[0] - guard.args[1]
    direction = tendency(difference, domain).direction
    if direction not in (1, -1):
        return None

    evaluation, ends = Evaluation(difference, symbols), domain.get(symbols[0], Range())

    def rising(size: int) -> int:
        return direction * int(evaluation({symbols[0]: size}))

    first_zero = _first(lambda size: rising(size) >= 0, ends)
    first_above = _first(lambda size: rising(size) > 0, ends)
    below, zero, above = _from(ends, first_zero, first_above)
    return (below, zero, above) if direction == 1 else (above, zero, below)


def _from(ends: Range, zero: int | None, above: int | None) -> tuple[Range, Range, Range]:
    """Three ranges that follow each other; what begins nowhere is empty."""
    nothing = Range(1, 0)
    until_zero = ends.high if zero is None else zero - 1
    until_above = ends.high if above is None else above - 1
    return (
        Range(ends.low, until_zero),
        nothing if zero is None else Range(zero, until_above),
        nothing if above is None else Range(above, ends.high),
    )


def _first(holds: Callable[[int], bool], ends: Range) -> int | None:
    """The least size for which a condition holds that stays true from there on."""
    last = min(FARTHEST, FARTHEST if ends.high is None else ends.high)
    if last < ends.low or not holds(last):
        return None
    low, high = ends.low, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _is_empty(part: Range) -> bool:
    return part.high is not None and part.high < part.low


def _direction_of(parts: Sequence[Tendency]) -> int | None:
    directions = {part.direction for part in parts} - {0}
    if not directions:
        return 0
    return directions.pop() if len(directions) == 1 else None


def _sum(parts: Sequence[Tendency]) -> Tendency:
    return Tendency(sum(part.low for part in parts), sum(part.high for part in parts), _direction_of(parts))


def _times(a: _Number, b: _Number) -> _Number:
    return 0 if a == 0 or b == 0 else a * b


def _product(parts: Sequence[Tendency]) -> Tendency:
    total = Tendency(1, 1, 0)
    for part in parts:
        corners = [_times(a, b) for a in (total.low, total.high) for b in (part.low, part.high)]
        total = Tendency(min(corners), max(corners), _direction_of_product(total, part))
    return total


def _direction_of_product(a: Tendency, b: Tendency) -> int | None:
    for number, other in ((a, b), (b, a)):
        if number.direction == 0 and other.direction is not None:
            return other.direction * ((number.low > 0) - (number.low < 0))
    return _direction_of((a, b)) if a.low >= 0 and b.low >= 0 else None


def _power(parts: Sequence[Tendency]) -> Tendency:
    base, exponent = parts
    if exponent.direction != 0 or base.low < 0 or not 0 < exponent.low <= 8:
        return _UNKNOWN
    return _product([base] * int(exponent.low))


def _quotient(parts: Sequence[Tendency]) -> Tendency:
    """Rounded down, by a constant above zero."""
    a, b = parts
    if b.direction != 0 or b.low <= 0:
        return _UNKNOWN
    return Tendency(_floor(a.low, b.low), _floor(a.high, b.low), a.direction)


def _quotient_up(parts: Sequence[Tendency]) -> Tendency:
    a, b = parts
    down = _quotient([_negative(a), b])
    return _negative(down)


def _negative(tendency: Tendency) -> Tendency:
    return Tendency(-tendency.high, -tendency.low, None if tendency.direction is None else -tendency.direction)


def _floor(a: _Number, b: _Number) -> _Number:
    return a if math.isinf(a) else a // b


def _remainder(parts: Sequence[Tendency]) -> Tendency:
    divisor = parts[1]
    return Tendency(0, divisor.high - 1, None) if divisor.low > 0 else _UNKNOWN


def _largest(parts: Sequence[Tendency]) -> Tendency:
    return Tendency(max(part.low for part in parts), max(part.high for part in parts), _direction_of(parts))


def _least(parts: Sequence[Tendency]) -> Tendency:
    return Tendency(min(part.low for part in parts), min(part.high for part in parts), _direction_of(parts))


#: What torch 2.11 to 2.13, and `size_floats`, have for Python's operations of floats.
_OF_FLOATS: dict[str, Callable[[_Number, _Number], _Number]] = {
    "FloatProduct": operator.mul,
    "FloatSum": operator.add,
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
}
_WHOLE_PARTS: dict[str, Callable[[float], int]] = {
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "RoundToInt": round,
    "TruncToInt": math.trunc,
}

_RULES: dict[str, Callable[[Sequence[Tendency]], Tendency]] = {
    "Add": _sum,
    "CeilDiv": _quotient_up,
    "CleanDiv": _quotient,
    "FloorDiv": _quotient,
    "Identity": lambda parts: parts[0],
    "Max": _largest,
    "Min": _least,
    "Mod": _remainder,
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "PythonMod": _remainder,
}
