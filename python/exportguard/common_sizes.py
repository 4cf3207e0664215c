"""The size that several make together which tensor data decide, all of them being 1 or one number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
from torch.utils._sympy import functions

_Max: Any = functions.Max
_Min: Any = functions.Min


def common_size(parts: Iterable[sympy.Expr]) -> sympy.Expr:
    """That of sizes which are 1 or one number `k`, which may be 0: `Max(a, b) * Min(1, a, b)`."""
    sizes = [*parts]
    made: sympy.Expr = _Max(*sizes) * _Min(1, *sizes)
    return made


def parts_of(size: sympy.Expr) -> tuple[sympy.Expr, ...]:
    """The sizes of which this one is the common one; itself alone if it is no such one.

    >>> a, b, c = sympy.symbols("a b c", integer=True, nonnegative=True)
    >>> sorted(parts_of(common_size([a, b, c])), key=str)
    [a, b, c]
    >>> parts_of(a + b)
    (a + b,)
    """
    largest = next((factor for factor in size.args if isinstance(factor, _Max)), None)
    made = largest is not None and size == largest * _Min(1, *largest.args)
    return largest.args if largest is not None and made else (size,)
