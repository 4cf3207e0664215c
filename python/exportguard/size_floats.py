"""Python's arithmetic of floats that are made of sizes, as functions of which sympy takes nothing apart.

Python rounds after each operation: `n * 0.15 * 20` is 26.999999999999996 for 9 rows. sympy takes floats for numbers of
which sums and products may be put together in any order, and makes `3.0 * n` of it. A function of two operands stands
as it was computed; torch has some of its own for the same reason, `FloatTrueDiv` and `FloatPow`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import sympy


class _OfTwoFloats(sympy.Function):  # type: ignore[misc]
    """What one operation makes of two floats, rounded once."""

    is_real = True
    nargs = (2,)
    precedence = 1000  # written within parentheses

    #: What a graph and Python compute it by, and how it is written.
    compute: ClassVar[Callable[[Any, Any], Any]]
    sign: ClassVar[str]
    is_commutative_in_floats: ClassVar[bool] = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        """A float where both operands are numbers; operands whose order changes nothing have one order."""
        if a.is_Number and b.is_Number:
            return sympy.Float(cls.compute(float(a), float(b)))
        if cls.is_commutative_in_floats and sympy.default_sort_key(b) < sympy.default_sort_key(a):
            return cls(b, a)
        return None

    def _sympystr(self, printer: Any) -> str:
        a, b = map(printer.doprint, self.args)
        return f"({a} {self.sign} {b})"

    _torch_sympystr = _sympystr  # torch's printers look for this name


class FloatSum(_OfTwoFloats):
    """`a + b`. A difference is the sum of a negative number."""

    compute = operator.add
    sign = "+"
    _torch_handler_name = "add"  # by which torch asks for its range, and makes nodes of it


class FloatProduct(_OfTwoFloats):
    """`a * b`."""

    compute = operator.mul
    sign = "*"
    _torch_handler_name = "mul"


class FloatMod(_OfTwoFloats):
    """`a % b`, with the sign of the divisor."""

    compute = operator.mod
    sign = "%"
    is_commutative_in_floats = False
    _torch_handler_name = "python_mod"


#: The names of what adds and multiplies, in whole numbers and in floats.
SUMS = ("Add", "FloatSum")
PRODUCTS = ("Mul", "FloatProduct")
