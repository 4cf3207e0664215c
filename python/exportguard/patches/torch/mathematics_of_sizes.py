"""Python's functions of numbers, called with a symbolic size: `math.sqrt(x.shape[-1])` makes a constant of it.

C asks a size for its float, which is a number for good. `torch.export` keeps the symbolic form of the root alone in a
program (torch 2.11 to 2.13); the others are computed by torch, from a tensor of one element in float64.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import sympy
import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.rewrites.arithmetic import MATH, to_digits, whole_to_digits
from exportguard.rewrites.raising import require_domain_uncaught

if TYPE_CHECKING:
    from exportguard._core import Changes

_Function = Callable[..., Any]

_OF_ONE_NUMBER = ("exp", "log2", "log10", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan")

# Without annotations in torch 2.11 to 2.13.
_sym_float: _Function = torch.sym_float
_sym_sqrt: _Function = torch.sym_sqrt


def _is_symbolic(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


def _computed(name: str, x: Any) -> Any:
    """A SymFloat, in the digits that C computes with."""
    if not _is_symbolic(x):
        return getattr(math, name)(x)
    require_domain_uncaught(name, x)
    return MATH[name](torch.scalar_tensor(x, dtype=torch.float64)).item()


def _of_one(name: str, original: _Function) -> _Function:
    @functools.wraps(original)
    def call(x: Any, /) -> Any:
        return _computed(name, x) if _is_symbolic(x) else original(x)

    return call


def _root(original: _Function) -> _Function:
    @functools.wraps(original)
    def sqrt(x: Any, /) -> Any:
        if not _is_symbolic(x):
            return original(x)
        require_domain_uncaught("sqrt", x)
        return _sym_sqrt(x)

    return sqrt


def _logarithm(original: _Function) -> _Function:
    @functools.wraps(original)
    def log(x: Any, /, *base: Any) -> Any:
        if not any(map(_is_symbolic, (x, *base))):
            return original(x, *base)
        logarithms = [_computed("log", value) if _is_symbolic(value) else original(value) for value in (x, *base)]
        return logarithms[0] / logarithms[1] if base else logarithms[0]

    return log


#: What takes the place of each function, by its name in `math`.
_MADE: Mapping[str, Callable[[_Function], _Function]] = {
    "sqrt": _root,
    "log": _logarithm,
    **{name: functools.partial(_of_one, name) for name in _OF_ONE_NUMBER},
}


def _of_sizes(original: _Function) -> _Function:
    return _MADE[original.__name__](original) if _is_of_c(original) else original


def _is_of_c(function: _Function) -> bool:
    """Whether it is, behind what an outer guard put in its place."""
    return isinstance(inspect.unwrap(function), types.BuiltinFunctionType)


def whole_quotients(original: _Function) -> _Function:
    """`(n / 8).is_integer()`: `n % 8 == 0` is the same question, which torch decides and can prove."""

    @functools.wraps(original)
    def is_integer(number: Any) -> Any:
        # Not at the top: whoever traces a size has them by now.
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
        from torch.utils._sympy.functions import IntTrueDiv, Mod

        quotient = number.node.expr
        if not isinstance(quotient, IntTrueDiv) or free_unbacked_symbols(quotient):
            return original(number)
        return bool(number.node.shape_env.evaluate_expr(sympy.Eq(Mod(*quotient.args), 0)))

    return is_integer


def rounded_to_digits(original: _Function) -> _Function:
    """`round(n, -1)`, which torch takes for `n`, and `round(n / 3, 2)`, which no program has an operator for."""

    @functools.wraps(original)
    def round_(self: Any, ndigits: Any = None) -> Any:
        if not ndigits:
            return original(self, ndigits)
        return whole_to_digits(self, ndigits) if isinstance(self, torch.SymInt) else to_digits(self, ndigits).item()

    return round_


#: What numpy calls a function of `math`; it calls the method of that name where it meets an object.
_OF_NUMPY = {
    **{name: name for name in ("sqrt", "log", *_OF_ONE_NUMBER)},
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
}


def _method(name: str) -> _Function:
    def method(self: Any) -> Any:
        return getattr(math, name)(self)

    return method


def _to_even(self: Any) -> Any:
    """`np.rint`, and `np.round` of a float, which give floats."""
    return _sym_float(round(self))


_METHODS = {**{name: _method(of_math) for name, of_math in _OF_NUMPY.items()}, "rint": _to_even}


def _for_numpy(changes: Changes) -> None:
    for kind in (torch.SymInt, torch.SymFloat):
        for name, method in _METHODS.items():
            if name not in vars(kind):
                added = functools.partial(setattr, kind, name, method)
                changes.call(added, functools.partial(delattr, kind, name), f"torch.{kind.__name__}.{name}")


def _probe_numpy() -> Verdict:
    is_any = any(not hasattr(torch.SymFloat, name) for name in _METHODS)
    return NEEDED if is_any else not_needed("symbolic sizes have the methods that numpy calls")


def _probe() -> Verdict:
    is_any = any(_is_of_c(getattr(math, name)) for name in _MADE)
    return NEEDED if is_any else not_needed("the functions of math are no functions of C")


PATCHES = (
    Patch(
        name="functions of numbers, of a size",
        kind="torch",
        target=tuple(f"math.{name}" for name in _MADE),
        reason="C asks a symbolic size for its float, and its axis becomes a constant",
        upstream="https://github.com/pytorch/pytorch/pull/177124",
        probe=_probe,
        replace=_of_sizes,
    ),
    Patch(
        name="functions of numpy, of a size",
        kind="torch",
        target=("torch.SymInt", "torch.SymFloat"),
        reason="numpy calls the method of its function's name, np.sqrt that of `sqrt`, which symbolic sizes lack",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/__init__.py",
        probe=_probe_numpy,
        apply=_for_numpy,
    ),
    Patch(
        name="quotients that are whole",
        kind="torch",
        target="torch.SymFloat.is_integer",
        reason="whether a size has no remainder is asked of floats, of which nothing can be proved or tried",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/sym_node.py",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(
                path="torch.fx.experimental.sym_node._sympy_is_integer",
                parameters="a",
                has=("sympy.Eq(ToFloat(sympy.floor(a)), a)",),
            )
        ),
        replace=whole_quotients,
    ),
    Patch(
        name="sizes rounded to digits",
        kind="torch",
        target=("torch.SymInt.__round__", "torch.SymFloat.__round__"),
        reason="a size rounded to tens is the size itself, and a program has no operator that rounds a float to digits",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/__init__.py",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(path="torch.SymInt.__round__", parameters="self, ndigits", uses=("self",), variable="self"),
            Expected(
                path="torch.fx.experimental.sym_node._sympy_round",
                parameters="number, ndigits",
                has=("RoundDecimal(number, ndigits)",),
            ),
        ),
        replace=rounded_to_digits,
    ),
)
