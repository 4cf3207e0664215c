# ruff: noqa: N802, N815 - sympy finds the methods of a printer by the names of its classes
"""Conditions of sizes as a user would write them: `rows // 2 == 4`, where sympy has `Eq((rows//2), 4)`."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.str import StrPrinter

#: By the names of torch's own functions (`torch.utils._sympy.functions`, torch 2.11 to 2.13), and of `size_floats`.
_OPERATORS = {
    "FloorDiv": "//",
    "CleanDiv": "//",
    "Mod": "%",
    "PythonMod": "%",
    "FloatMod": "%",
    "IntTrueDiv": "/",
    "FloatTrueDiv": "/",
    "FloatProduct": "*",
    "FloatSum": "+",
}
_FUNCTIONS = {
    "Max": "max",
    "Min": "min",
    "ToFloat": "float",
    "TruncToInt": "int",
    "FloorToInt": "math.floor",
    "CeilToInt": "math.ceil",
    "TruncToFloat": "math.trunc",
    "RoundToInt": "round",
    "RoundDecimal": "round",
    "floor": "math.floor",
    "ceiling": "math.ceil",
}
_LEVELS: dict[str, int] = PRECEDENCE
_POWERS = ("FloatPow", "PowByNatural")
_OF_MATH = "OpaqueUnaryFn_"


def in_python(expression: sympy.Basic) -> str:
    """The expression in Python's words.

    >>> rows = sympy.Symbol("rows", integer=True)
    >>> in_python(sympy.Ne(rows, 4)), in_python((rows > 3) & (rows < 9))
    ('rows != 4', 'rows > 3 and rows < 9')
    """
    text: str = _Printer().doprint(expression)
    return text


class _Printer(StrPrinter):  # type: ignore[misc]
    printmethod = "_exportguard_words"  # torch's classes have texts of their own under sympy's name

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        if name in _OPERATORS:
            level = _level(expr)
            first, second = expr.args
            left = self.parenthesize(first, level, strict=True)
            return f"{left} {_OPERATORS[name]} {self.parenthesize(second, level)}"
        if name in _POWERS:
            return "**".join(self.parenthesize(part, _LEVELS["Pow"]) for part in expr.args)
        if name == "Identity":
            return self._print(expr.args[0])  # type: ignore[no-any-return]
        known = _FUNCTIONS.get(name, name)
        called = f"math.{name.removeprefix(_OF_MATH)}" if name.startswith(_OF_MATH) else known
        return f"{called}({', '.join(map(self._print, expr.args))})"

    # Of torch's classes some are no `Function` of sympy's.
    _print_Application = _print_Max = _print_Min = _print_Function
    _print_floor = _print_ceiling = _print_Identity = _print_Function

    def _print_Relational(self, expr: Any) -> str:
        left, right = (self.parenthesize(side, _LEVELS["Relational"]) for side in expr.args)
        return f"{left} {expr.rel_op} {right}"

    def _print_And(self, expr: Any) -> str:
        return " and ".join(self.parenthesize(part, _LEVELS["And"]) for part in _in_order(expr))

    def _print_Or(self, expr: Any) -> str:
        return " or ".join(self.parenthesize(part, _LEVELS["Or"]) for part in _in_order(expr))

    def _print_Not(self, expr: Any) -> str:
        return f"not {self.parenthesize(expr.args[0], _LEVELS['Relational'])}"

    def parenthesize(self, item: Any, level: int, strict: bool = False) -> str:
        """The item's text, in brackets if it binds less."""
        binds = _level(item)
        is_less = binds < level or (not strict and binds <= level)
        return f"({self._print(item)})" if is_less else str(self._print(item))


def _level(item: Any) -> int:
    """How closely the parts of an expression belong together, as sympy counts it."""
    name = type(item).__name__
    if name in _POWERS:
        return _LEVELS["Pow"]
    operator = _OPERATORS.get(name)
    if operator is None:
        return int(precedence(item))
    return _LEVELS["Add" if operator == "+" else "Mul"]


def _in_order(expr: Any) -> list[Any]:
    return sorted(expr.args, key=sympy.default_sort_key)
