"""Sizes that are products of three or more, as `int(1.25 * batch * seq / 4)` is: the nodes of their expression.

A size that Python's arithmetic did not make has no node in the graph, and torch makes nodes of its expression, which
sympy keeps flat: the product of three is one of three operands (torch 2.11 to 2.13; in 2.13 sums are taken care of).
The least and the largest of several have no nodes before 2.13, and there nodes that no exported program may have.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Max, Min

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_TARGET = "torch.fx.experimental.proxy_tensor._build_proxy_for_sym_expr"
_OF_TWO: dict[Any, Any] = {sympy.Mul: operator.mul, sympy.Add: operator.add, Max: torch.sym_max, Min: torch.sym_min}


def taken_by_twos(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch's function, but that what has more operands is made of two at a time."""

    @functools.wraps(original)
    def build(tracer: Any, expr: Any, out: Any = None) -> Any:
        # Not at the top: whoever traces has it by now.
        from torch.fx.experimental.proxy_tensor import _sym_register

        function = _OF_TWO.get(getattr(expr, "func", None))
        is_known = expr in tracer.sympy_expr_tracker
        if function is None or is_known or (len(expr.args) < 3 and expr.func not in (Max, Min)):
            return original(tracer, expr, out)
        operands = [build(tracer, operand) for operand in expr.args]
        if any(operand is None for operand in operands):
            return None
        *first, last = operands
        begun = functools.reduce(function, first)
        if out is None:
            return function(begun, last)
        _sym_register(tracer, function, (begun, last), out)
        return out

    return build


PATCHES = (
    Patch(
        name="products of several sizes",
        kind="torch",
        target=_TARGET,
        reason="a size that is the product of three has no nodes: `mul expected 2 arguments, got 3`",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="tracer, expr, out",
                has=("_sympy_handlers().get(expr.func)", "_sym_register(tracer, func, tuple(args), out)"),
            )
        ),
        replace=taken_by_twos,
    ),
)
