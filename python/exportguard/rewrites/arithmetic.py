"""What Python's `round`, `divmod` and `math` make of a number that only the run knows: the same in double precision."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import torch

from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.logic import float_, int_, whole_number
from exportguard.rewrites.numbers import as_number, number_tensor

#: Functions of `math` and the torch functions that compute the same.
MATH: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("sqrt", "exp", "expm1", "log", "log1p", "log2", "log10")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(torch, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow")},
    **{name: getattr(torch, name) for name in ("floor", "ceil", "trunc", "fmod", "isnan", "isinf", "isfinite")},
    **{"fabs": torch.abs, "copysign": torch.copysign},
}
_TO_INT = ("floor", "ceil", "trunc")


def math_(name: str, *numbers: Any) -> Any:
    """`math.name(…)`."""
    if name in _TO_INT and isinstance(numbers[0], torch.SymFloat):
        return whole_number(numbers[0], getattr(math, name), MATH[name])
    is_of_size = name not in _TO_INT and any(isinstance(number, torch.SymInt | torch.SymFloat) for number in numbers)
    if not is_of_size and not any(depends_on_data(number) for number in numbers):
        return getattr(math, name)(*numbers)
    doubles = [number_tensor(float_(number)).reshape(()).to(torch.float64) for number in numbers]
    result = MATH[name](*doubles)
    return int_(result) if name in _TO_INT else as_number(result)


def round_(number: Any, digits: Any = None) -> Any:
    """`round(number)` and `round(number, digits)`: halves go to the even neighbour."""
    if isinstance(number, torch.SymFloat) and digits is None:
        return whole_number(number, builtins.round, torch.round)
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
    if not depends_on_data(number) and not depends_on_data(divisor):
        return builtins.divmod(number, divisor)
    return number // divisor, number % divisor
