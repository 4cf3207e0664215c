"""What Python's `round`, `divmod` and `math` make of a number that only the run knows: the same in double precision."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.logic import float_, int_, whole_number
from exportguard.rewrites.numbers import as_not_negative, as_number, is_not_negative, number_tensor
from exportguard.rewrites.raising import require_divisor_uncaught, require_domain_uncaught, require_no_handler

#: Functions of `math` and the torch functions that compute the same.
MATH: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("sqrt", "exp", "expm1", "log", "log1p", "log2", "log10")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(torch, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow")},
    **{name: getattr(torch, name) for name in ("floor", "ceil", "trunc", "fmod", "isnan", "isinf", "isfinite")},
    **{"fabs": torch.abs, "copysign": torch.copysign},
}
_TO_INT = ("floor", "ceil", "trunc")
_DOMAINS = ("sqrt", "log", "log1p", "log2", "log10", "asin", "acos", "acosh", "atanh", "sin", "cos", "tan", "fmod")
_OVERFLOWS = ("exp", "expm1", "sinh", "cosh")
_RAISED: dict[str, tuple[type[Exception], ...]] = {
    **dict.fromkeys(_DOMAINS, (ValueError,)),
    **dict.fromkeys(_OVERFLOWS, (OverflowError,)),
    **dict.fromkeys((*_TO_INT, "pow"), (ValueError, OverflowError)),
}
_BITS = 63  # of a size
_FROM_ONE = ("sqrt", "exp", "log", "log1p", "log2", "log10")  # 0 or more of numbers from 1 up


def math_(name: str, *numbers: Any) -> Any:
    """`math.name(…)`."""
    if name in _TO_INT and isinstance(numbers[0], torch.SymFloat):
        return whole_number(numbers[0], name)
    is_of_size = name not in _TO_INT and any(isinstance(number, torch.SymInt | torch.SymFloat) for number in numbers)
    if not is_of_size and not any(depends_on_data(number) for number in numbers):
        return getattr(math, name)(*numbers)
    if any(depends_on_data(number) for number in numbers):
        require_no_handler(_RAISED.get(name, ()), f"a number that math.{name} does not take")
    else:
        require_domain_uncaught(name, numbers[-1 if name == "fmod" else 0])
    doubles = [number_tensor(float_(number)).reshape(()).to(torch.float64) for number in numbers]
    result = MATH[name](*doubles)
    if _is_not_negative(name, numbers[0]):
        as_not_negative(result)
    return int_(result) if name in _TO_INT else as_number(result)


def _is_not_negative(name: str, number: Any) -> bool:
    if isinstance(number, torch.SymInt):
        return name in _FROM_ONE and statically_known_true(number >= 1)
    return name in _TO_INT and isinstance(number, torch.Tensor) and is_not_negative(number)


def round_(number: Any, digits: Any = None) -> Any:
    """`round(number)` and `round(number, digits)`: halves go to the even neighbour."""
    if isinstance(number, torch.SymFloat) and digits is None:
        return whole_number(number, "round")
    if isinstance(number, torch.SymFloat):
        number = float_(number)
    if not depends_on_data(number):
        return builtins.round(number) if digits is None else builtins.round(number, digits)
    if isinstance(number, torch.SymInt) and digits is None:
        return number
    double = float_(number)
    if digits is None:
        return int_(torch.round(double))
    return as_number(torch.round(double * 10.0**digits) / 10.0**digits)


def divmod_(number: Any, divisor: Any) -> Any:
    """`divmod(number, divisor)`."""
    is_symbolic = any(isinstance(part, torch.SymInt | torch.SymFloat) for part in (number, divisor))
    if not is_symbolic and not depends_on_data(number) and not depends_on_data(divisor):
        return builtins.divmod(number, divisor)
    require_divisor_uncaught(divisor)
    return number // divisor, number % divisor


def isqrt_(number: Any) -> Any:
    """`math.isqrt(number)`, of numbers below 2^52, whose roots are rounded down as they are in double precision."""
    if not depends_on_data(number) and not isinstance(number, torch.SymInt):
        return math.isqrt(number)
    return math_("floor", math_("sqrt", number))


def numel(owner: Any) -> Any:
    """`x.shape.numel()`, for which C asks each size for its number; or `x.numel()`."""
    return math.prod(owner) if isinstance(owner, torch.Size) else owner.numel()


def bit_length(number: Any) -> Any:
    """`number.bit_length()`: how many of its shifts by 0, 1, 2, … leave something."""
    if not depends_on_data(number) and not isinstance(number, torch.SymInt):
        return number.bit_length()
    shifts = torch.arange(_BITS)
    shifted = torch.bitwise_right_shift(number_tensor(number).to(torch.int64).reshape(()).abs(), shifts)
    return int_(as_not_negative((shifted > 0).sum()))
