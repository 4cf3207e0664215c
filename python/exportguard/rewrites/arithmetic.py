"""What Python's `round`, `divmod` and `math` make of a number that only the run knows: the same in double precision."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import is_open
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.logic import float_, int_, whole_number
from exportguard.rewrites.numbers import as_not_negative, as_number, is_not_negative, is_number, number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_divisor_uncaught, require_domain_uncaught, require_no_handler
from exportguard.source.errors import RewriteError


def _cube_root(number: torch.Tensor) -> torch.Tensor:
    """Of cubes of whole numbers it is the number, of which the C library may be off by a digit."""
    root = number.pow(1 / 3)
    return torch.where(torch.round(root) ** 3 == number, torch.round(root), root)


def logarithm_to(base: int, number: torch.Tensor) -> torch.Tensor:
    """`math.log2` or `math.log10`: of powers of the base it is whole, of which a quotient of logarithms is off."""
    logarithm = torch.log2(number) if base == 2 else torch.log10(number)
    whole = torch.round(logarithm)
    return torch.where(torch.pow(torch.full_like(number, base), whole) == number, whole, logarithm)


def _remainder(number: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """IEEE 754's: each step is exact, so that it is for large quotients and an infinite divisor as well."""
    left = torch.fmod(number.abs(), 2 * divisor)
    behind = left - divisor
    near = torch.where(behind < divisor / 2, behind, behind - divisor)
    return torch.copysign(torch.ones_like(number), number) * torch.where(left <= divisor / 2, left, near)


def _scaled(number: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """`number` times a power of two that may be no float: in three steps, each of which is one."""
    third = torch.trunc(exponent / 3)
    return number * torch.exp2(third) * torch.exp2(third) * torch.exp2(exponent - 2 * third)


#: Functions of `math` and the torch functions that compute the same.
MATH: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("sqrt", "exp", "expm1", "log", "log1p")},
    **{f"log{base}": functools.partial(logarithm_to, base) for base in (2, 10)},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(torch, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow")},
    **{name: getattr(torch, name) for name in ("floor", "ceil", "trunc", "fmod", "isnan", "isinf", "isfinite")},
    **{"fabs": torch.abs, "copysign": torch.copysign, "erfc": torch.erfc, "exp2": torch.exp2, "lgamma": torch.lgamma},
    **{"degrees": torch.rad2deg, "radians": torch.deg2rad},
    "cbrt": lambda number: torch.copysign(_cube_root(number.abs()), number),
    "remainder": lambda number, divisor: _remainder(number, divisor.abs()),
    "ldexp": lambda number, exponent: _scaled(number, exponent.clamp(-_LARGEST_POWER, _LARGEST_POWER)),
    "fma": lambda number, factor, summand: number * factor + summand,
}
_TO_INT = ("floor", "ceil", "trunc")
_DOMAINS = ("sqrt", "log", "log1p", "log2", "log10", "asin", "acos", "acosh", "atanh", "sin", "cos", "tan", "fmod")
_OVERFLOWS = ("exp", "expm1", "sinh", "cosh", "exp2", "ldexp")
_RAISED: dict[str, tuple[type[Exception], ...]] = {
    **dict.fromkeys(_DOMAINS, (ValueError,)),
    **dict.fromkeys(_OVERFLOWS, (OverflowError,)),
    **dict.fromkeys((*_TO_INT, "pow", "lgamma"), (ValueError, OverflowError)),
    "remainder": (ValueError,),
}
_BITS = 63  # of a size
_PAIR = 2
_LARGEST_POWER = 3000  # of two: it makes nothing or infinity of every float but 0
_EXACT_POWERS = 22  # of ten, that a float has all digits of
_ALL_DIGITS = 2.0**53  # beyond it floats lie farther apart than whole numbers
_FROM_ONE = ("sqrt", "exp", "log", "log1p", "log2", "log10")  # 0 or more of numbers from 1 up


def math_(name: str, *numbers: Any, **options: Any) -> Any:
    """`math.name(…)`.

    :raises RewriteError: no graph has the function
    """
    if (
        options
        or name not in MATH
        or (name == "log" and len(numbers) > 1)
        or (name == "hypot" and len(numbers) != _PAIR)
    ):
        return _made_of_others(name, *numbers, **options)
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


def _made_of_others(name: str, *numbers: Any, **options: Any) -> Any:
    """`math.name(…)` of what is no function of one or two numbers."""
    leaves = pytree.tree_leaves((numbers, options))
    if not any(depends_on_data(leaf) or isinstance(leaf, torch.SymInt | torch.SymFloat) for leaf in leaves):
        return getattr(math, name)(*numbers, **options)
    made = _COMPOSED.get(name)
    if made is None:
        raise RewriteError(
            f"{line_now()}: no graph has math.{name} of a number of tensor data or of a dynamic size; compute it of a "
            "tensor with functions of torch, or look it up in a table: table[n]"
        )
    return made(*numbers, **options)


def _is_close(a: Any, b: Any, *, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> Any:
    one, other = (number_tensor(float_(number)) for number in (a, b))
    bound = torch.clamp(rel_tol * torch.maximum(one.abs(), other.abs()), min=abs_tol)
    is_near = torch.logical_and((one - other).abs() <= bound, torch.isfinite(one - other))
    return as_number(torch.logical_or(one == other, is_near))


def _modf(number: Any) -> tuple[Any, Any]:
    double = number_tensor(float_(number))
    whole = torch.trunc(double)
    part = torch.where(torch.isinf(double), torch.zeros_like(double), double - whole)
    return as_number(torch.copysign(part, double)), as_number(whole)


def _product(numbers: Iterable[Any], *, start: Any = 1) -> Any:
    return functools.reduce(lambda a, b: a * b, _listed(numbers, "prod"), start)


def _sum_of_products(one: Iterable[Any], other: Iterable[Any]) -> Any:
    pairs = zip(_listed(one, "sumprod"), _listed(other, "sumprod"), strict=True)
    return functools.reduce(lambda a, b: a + b, (a * b for a, b in pairs), 0)


def _root_of_squares(*numbers: Any) -> Any:
    return math_("sqrt", functools.reduce(lambda a, b: a + b, (float_(n) * float_(n) for n in numbers), 0.0))


def _listed(numbers: Iterable[Any], name: str) -> list[Any]:
    if is_open(numbers):
        raise RewriteError(
            f"{line_now()}: math.{name} of a list that a loop over tensors fills; use torch.{name.removeprefix('f')} "
            "of a tensor, or a loop"
        )
    return [*numbers]


#: Functions of `math` that are made of other ones.
_COMPOSED: dict[str, Callable[..., Any]] = {
    "log": lambda number, base: math_("log", number) / math_("log", base),
    "hypot": _root_of_squares,
    "dist": lambda p, q: _root_of_squares(
        *(a - b for a, b in zip(_listed(p, "dist"), _listed(q, "dist"), strict=True))
    ),
    "isclose": _is_close,
    "modf": _modf,
    "prod": _product,
    "sumprod": _sum_of_products,
}

#: Methods of Python's numbers by what they give for one that only the run knows.
_METHODS: dict[str, Callable[[Any], Any]] = {
    "is_integer": lambda number: as_number(_is_whole(number_tensor(number))),
    "conjugate": lambda number: number,
    "bit_count": lambda number: _bits(number),
}


def _is_whole(number: torch.Tensor) -> torch.Tensor:
    return torch.logical_and(number == torch.floor(number), torch.isfinite(number))


def method_of_number(name: str, owner: Any, *arguments: Any) -> Any:
    """`owner.name(…)`, which may be anything's method of that name.

    :raises RewriteError: no graph has it
    """
    is_of_data = isinstance(owner, torch.SymInt | torch.SymFloat) or (is_number(owner) and depends_on_data(owner))
    if not is_of_data:
        return getattr(owner, name)(*arguments)
    if name not in _METHODS:
        raise RewriteError(
            f"{line_now()}: no graph has {name}() of a number of tensor data or of a dynamic size; compute what it is "
            "asked for with arithmetic"
        )
    return _METHODS[name](owner)


def without_meaning(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """`bin(n)` and its kin, which make a text or bytes of the digits of a number.

    :raises RewriteError: only the run knows the number
    """
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if any(isinstance(number, symbolic) or (is_number(number) and depends_on_data(number)) for number in arguments):
        raise RewriteError(
            f"{line_now()}: {name}(…) of a number of tensor data or of a dynamic size, which no graph has: it has no "
            "texts, bytes or hashes; compute with the number itself"
        )
    return function(*arguments)


def _is_not_negative(name: str, number: Any) -> bool:
    if isinstance(number, torch.SymInt):
        return name in _FROM_ONE and statically_known_true(number >= 1)
    return name in _TO_INT and isinstance(number, torch.Tensor) and is_not_negative(number)


def round_(number: Any, digits: Any = None) -> Any:
    """`round(number)` and `round(number, digits)`: halves go to the even neighbour."""
    if isinstance(number, torch.SymFloat) and digits is None:
        return whole_number(number, "round")
    is_symbolic = isinstance(number, torch.SymInt | torch.SymFloat)
    if not is_symbolic and not depends_on_data(number):
        return builtins.round(number) if digits is None else builtins.round(number, digits)
    is_whole = is_number(number) and not number.is_floating_point() and number.dtype != torch.bool
    if is_whole or isinstance(number, torch.SymInt):
        return whole_to_digits(number, digits)
    if digits is not None:
        return to_digits(number, digits)
    return int_(torch.round(float_(number)))


def whole_to_digits(number: Any, digits: Any) -> Any:
    """`round(number, digits)` of a whole number, which is one: to tens, to hundreds, … where there are fewer than no
    digits."""
    digits = _known_digits(digits)
    if digits >= 0:
        return number
    unit = 10**-digits
    is_odd = number // unit % 2
    return (number + unit // 2 - 1 + is_odd) // unit * unit


def to_digits(number: Any, digits: Any) -> Any:
    """`round(number, digits)` of a float: what is nearest to the number itself, not to a product that was rounded."""
    digits = _known_digits(digits)
    if abs(digits) > _EXACT_POWERS:
        raise RewriteError(f"{line_now()}: round(…) to {digits} digits, of which no float has the power of ten")
    double, unit = number_tensor(float_(number)).reshape(()), 10.0 ** abs(digits)
    scaled = double * unit if digits > 0 else double / unit
    # What the product is too small by, or what is left of the quotient: halfway it decides, as it decides for Python.
    left = -_left_of(scaled, double, unit) if digits > 0 else _left_of(double, scaled, unit)
    whole = torch.round(scaled)
    apart = scaled - whole
    whole = torch.where(torch.logical_and(apart == 0.5, left > 0), whole + 1, whole)
    whole = torch.where(torch.logical_and(apart == -0.5, left < 0), whole - 1, whole)
    rounded = whole / unit if digits > 0 else whole * unit
    is_as_it_is = scaled.abs() > _ALL_DIGITS if digits > 0 else torch.isinf(double)
    return as_number(torch.where(is_as_it_is, double, rounded))


def _left_of(product: Any, a: Any, b: float) -> torch.Tensor:
    """`product - a * b` with all of its digits, where they are nearly the same: no product of halves is rounded."""
    high, low = _halves(a)
    high_of_b, low_of_b = _halves(b)
    found: torch.Tensor = product - high * high_of_b - high * low_of_b - low * high_of_b - low * low_of_b
    return found


def _halves(number: Any) -> tuple[Any, Any]:
    """A float as two of 26 digits (T. J. Dekker, 1971)."""
    moved = number * (2.0**27 + 1)
    high = moved - (moved - number)
    return high, number - high


def _known_digits(digits: Any) -> int:
    if digits is None:
        return 0
    if type(digits) is not int:
        raise RewriteError(f"{line_now()}: round(…) to a number of digits that only the run knows, which no graph has")
    return digits


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


def joined_shape(first: Any, second: Any) -> Any:
    """`x.shape[:-1] + (n,)`: a `torch.Size` takes no tensors, which numbers of data are in a branch."""
    parts = (first, second)
    are_shapes = all(type(part) in (torch.Size, tuple) for part in parts)
    if are_shapes and any(isinstance(entry, torch.Tensor) for part in parts for entry in part):
        return (*first, *second)
    return first + second


def bit_length(number: Any) -> Any:
    """`number.bit_length()`: how many of its shifts by 0, 1, 2, … leave something."""
    if not depends_on_data(number) and not isinstance(number, torch.SymInt):
        return number.bit_length()
    return int_(as_not_negative((_shifted(number) > 0).sum()))


def _bits(number: Any) -> Any:
    return int_(as_not_negative((_shifted(number) % 2).sum()))


def _shifted(number: Any) -> torch.Tensor:
    """What is left of a number by shifts of 0, 1, 2, …"""
    return torch.bitwise_right_shift(number_tensor(number).to(torch.int64).reshape(()).abs(), torch.arange(_BITS))
