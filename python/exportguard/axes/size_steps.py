"""Conditions on sizes as steps, each an operation on those in front of it, which are computed outside of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from exportguard.size_floats import PRODUCTS, SUMS

Step = tuple[str, list[int], int | float]

_FEW = 2**62  # what is beyond is no number of 64 bits once something is added
_FACTORS = 8
_DOUBLE = 53  # bits
#: Operations of two operands, or of the first and each further one, by the names of torch's functions and sympy's.
_OPERATIONS: Mapping[str, str] = {
    **dict.fromkeys(SUMS, "+"),
    **dict.fromkeys(PRODUCTS, "*"),
    "CleanDiv": "//",
    "FloatTrueDiv": "/",
    "FloorDiv": "//",
    "IntTrueDiv": "/",
    "Max": "max",
    "Min": "min",
    "Mod": "%",
    "PythonMod": "%",
}
#: Of one operand; what is no float already is no other integer.
_CONVERSIONS: Mapping[str, str] = {
    "CeilToInt": "ceil",
    "FloorToInt": "floor",
    "RoundToInt": "round",
    "ToFloat": "float",
    "TruncToInt": "trunc",
}
_OF_INTEGERS = ("//", "%")
_OF_ONE_KIND = ("max", "min")
_OF_EITHER_KIND = ("+", "*", "max", "min")
_TO_REALS = ("real", "float", "/")
_COMPARISONS: Mapping[type, str] = {
    sympy.Equality: "==",
    sympy.Unequality: "!=",
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
}
_TURNED: Mapping[type, str] = {sympy.StrictGreaterThan: "<", sympy.GreaterThan: "<="}


def steps_of(condition: sympy.Basic, symbols: Sequence[sympy.Symbol]) -> list[Step] | None:
    """What computes a condition from sizes in the order of the symbols; None if it has something that is no step."""
    steps = _Steps(symbols)
    try:
        steps.take(condition)
    except _NoStepError:
        return None
    return steps.found


class _NoStepError(ValueError):
    """Python alone computes it: choices within, powers and roots of floats."""


class _Steps:
    def __init__(self, symbols: Sequence[sympy.Symbol]) -> None:
        self.found: list[Step] = [("size", [], number) for number in range(len(symbols))]
        self._places: dict[sympy.Basic, int] = {symbol: number for number, symbol in enumerate(symbols)}
        self._reals: set[int] = set()  # the places of floats

    def take(self, condition: sympy.Basic) -> int:
        """Adds a condition, and says at which place."""
        if isinstance(condition, sympy.And | sympy.Or):
            joined = "and" if isinstance(condition, sympy.And) else "or"
            return self._add(joined, [self.take(part) for part in condition.args])
        if type(condition) in _COMPARISONS or type(condition) in _TURNED:
            first, second = map(self._number, condition.args)
            turned = _TURNED.get(type(condition))
            if turned is not None:
                return self._add(turned, [second, first])
            return self._add(_COMPARISONS[type(condition)], [first, second])
        raise _NoStepError

    def _number(self, expression: sympy.Basic) -> int:
        if expression not in self._places:
            self._places[expression] = self._computed(expression)
        return self._places[expression]

    def _computed(self, expression: sympy.Basic) -> int:
        kind = type(expression).__name__
        if expression.is_Integer and abs(expression) < _FEW:
            return self._add("number", [], int(expression))
        if expression.is_Float:
            return self._add("real", [], _as_printed(expression))
        if kind == "Identity":
            return self._number(expression.args[0])
        if kind in _CONVERSIONS:
            return self._add(_CONVERSIONS[kind], [self._number(expression.args[0])])
        if kind == "Pow":
            base, exponent = expression.args
            if not exponent.is_Integer or not 0 < exponent <= _FACTORS:
                raise _NoStepError
            return self._joined("*", [self._number(base)] * int(exponent))
        if kind not in _OPERATIONS:
            raise _NoStepError
        return self._joined(_OPERATIONS[kind], [self._number(argument) for argument in expression.args])

    def _joined(self, operation: str, operands: Sequence[int]) -> int:
        place, *others = operands
        for other in others:
            place = self._add(operation, [place, other])
        return place

    def _add(self, operation: str, operands: list[int], number: int | float = 0) -> int:
        reals = [operand for operand in operands if operand in self._reals]
        if reals and (operation in _OF_INTEGERS or (operation in _OF_ONE_KIND and len(reals) < len(operands))):
            raise _NoStepError
        self.found.append((operation, operands, number))
        place = len(self.found) - 1
        if operation in _TO_REALS or (reals and operation in _OF_EITHER_KIND):
            self._reals.add(place)
        return place


def _as_printed(number: sympy.Float) -> float:
    """The float that torch 2.11 to 2.13 print with 17 digits, of doubles alone."""
    if number._prec != _DOUBLE:
        raise _NoStepError
    return float(str(sympy.Float(number, dps=17)))
