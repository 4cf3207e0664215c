"""Conditions of sizes as nodes of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Proxy
from torch.utils._sympy.reference import PythonReferenceAnalysis


class OfNodes(PythonReferenceAnalysis):
    """What torch 2.11 to 2.13 ask Python or sympy to compute of numbers, as calls where nodes stand for them."""

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        return operator.truediv(a, b)

    @staticmethod
    def floor_to_int(x: Any, dtype: object) -> Any:
        return _called(math.floor, x)

    @staticmethod
    def ceil_to_int(x: Any, dtype: object) -> Any:
        return _called(math.ceil, x)

    @staticmethod
    def trunc_to_int(x: Any, dtype: object) -> Any:
        return _called(math.trunc, x)

    @staticmethod
    def round_to_int(a: Any, dtype: object) -> Any:
        return _called(round, a)


def _called(function: Callable[[Any], Any], number: Any) -> Any:
    if isinstance(number, Proxy):
        return number.tracer.create_proxy("call_function", function, (number,), {})
    return function(number)
