"""Floats that are made of sizes are computed one operation after the other, as Python computes them.

torch 2.11 to 2.13 leave sums, products and remainders of floats to sympy, which puts constants together: tests are
decided by what it finds, and nodes of a program that are one number to it become one. A quotient of floats that is
rounded down is the floor of the quotient there; Python takes the remainder off first.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch

from exportguard import _core
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, Replacement, replaced
from exportguard.patches.torch.remembered_sizes import COMPUTED, remembering
from exportguard.size_floats import FloatMod, FloatProduct, FloatSum

if TYPE_CHECKING:
    from exportguard._core import Changes

_Function = Callable[..., Any]

# Without annotations in torch 2.11 to 2.13.
_sym_float: _Function = torch.sym_float

_NODE = "torch.fx.experimental.sym_node.SymNode"
_RANGES = "torch.utils._sympy.value_ranges.SymPyValueRangeAnalysis.python_mod"


def _difference(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return FloatSum(a, -b)


def _as_written(compute: _Function, made: _Function) -> Callable[[_Function], _Function]:
    """What makes an operation of two nodes one of its own where one of them is a float; others are remembered.

    :param made: the expression of the result, of the operands' expressions
    """

    def replace(original: _Function) -> _Function:
        of_whole = original if compute is operator.mod else remembering(original)  # torch asks for a remainder's range

        @functools.wraps(original)
        def operation(self: Any, other: Any) -> Any:
            if self.pytype is not float and other.pytype is not float:
                return of_whole(self, other)
            # Not at the top: whoever traces a size has it by now.
            from torch.fx.experimental.proxy_tensor import get_proxy_mode

            # A tracer records the call and makes it once more, without being the mode.
            if get_proxy_mode() is not None:
                return original(self, other)
            expression = made(self.expr, other.expr)
            call, _ = self.shape_env._create_fx_call_function(compute, (self.fx_node, other.fx_node))
            return type(self)(expression, self.shape_env, float, _hint(compute, self, other), fx_node=call)

        return operation

    return replace


def _hint(compute: _Function, *operands: Any) -> Any:
    """What the example's sizes make of it; None where torch is to see by itself."""
    hints = [operand.hint for operand in operands]
    if not all(isinstance(hint, bool | int | float) for hint in hints):
        return None
    return float(compute(*hints))


def _by_remainders(original: _Function) -> _Function:
    @functools.wraps(original)
    def floordiv(self: Any, other: Any) -> Any:
        return _floor_quotient(self, other) if _is_of_floats(self, other) else original(self, other)

    return floordiv


def _by_remainders_of_the_other(original: _Function) -> _Function:
    @functools.wraps(original)
    def rfloordiv(self: Any, other: Any) -> Any:
        return _floor_quotient(other, self) if _is_of_floats(self, other) else original(self, other)

    return rfloordiv


def _is_of_floats(self: object, other: object) -> bool:
    are_numbers = isinstance(other, int | float | torch.SymInt | torch.SymFloat)
    return are_numbers and any(isinstance(number, float | torch.SymFloat) for number in (self, other))


def _floor_quotient(number: Any, divisor: Any) -> Any:
    """`number // divisor` of floats. Without its remainder a number is a multiple of the divisor but for the rounding
    of both, and Python as well takes the nearest whole number."""
    a, b = _sym_float(number), _sym_float(divisor)
    return _sym_float(round((a - a % b) / b))


def _of_floats_as_well(original: _Function) -> _Function:
    """The range of a remainder: torch's are those of whole numbers, which end at the divisor less one."""

    @functools.wraps(original)
    def python_mod(cls: Any, x: Any, y: Any) -> Any:
        from torch.utils._sympy.value_ranges import ValueRanges

        dividend, divisor = ValueRanges.wrap(x), ValueRanges.wrap(y)
        if not (dividend.is_float or divisor.is_float):
            return original(cls, x, y)
        zero = sympy.Float(0)
        low, high = min(divisor.lower, zero), max(divisor.upper, zero)
        return ValueRanges(low, high)

    return python_mod


_OPERATIONS: dict[str, Callable[[_Function], _Function]] = {
    f"{_NODE}._add": _as_written(operator.add, FloatSum),
    f"{_NODE}._sub": _as_written(operator.sub, _difference),
    f"{_NODE}._mul": _as_written(operator.mul, FloatProduct),
    f"{_NODE}._mod": _as_written(operator.mod, FloatMod),
    "torch.SymFloat.__floordiv__": _by_remainders,
    "torch.SymFloat.__rfloordiv__": _by_remainders_of_the_other,
    "torch.SymInt.__floordiv__": _by_remainders,
    "torch.SymInt.__rfloordiv__": _by_remainders_of_the_other,
    _RANGES: _of_floats_as_well,
}


def _replace_all(changes: Changes) -> list[Replacement]:
    return [replaced(changes, path, replace) for path, replace in _OPERATIONS.items()]


PATCHES = (
    Patch(
        name="floats of sizes",
        kind="torch",
        target=tuple(_OPERATIONS),
        awaits="torch.fx.experimental.symbolic_shapes",
        reason="sympy puts the constants of floats together, where Python rounds after each operation",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/sym_node.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(
            COMPUTED,
            Expected(
                path="torch.SymFloat.__floordiv__",
                parameters="self, other",
                has=("sym_float(math.floor(self / sym_float(other)))",),
            ),
            Expected(path="torch.SymInt.__floordiv__", parameters="self, other", has=("sym_float(self) / other",)),
            Expected(path=_RANGES, parameters="cls, x, y", has=("y.upper - 1",)),
        ),
        apply=_replace_all,
    ),
)


@contextmanager
def computed_as_written() -> Iterator[None]:
    """Within the block floats of sizes are computed so, for what is made of them outside of a guard."""
    changes = _core.KeptChanges()
    try:
        if PATCHES[0].verdict()[0] == "needed":
            _replace_all(changes)
        yield
    finally:
        changes.undo()
