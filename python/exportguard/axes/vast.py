"""Guards that only vast tensors break: `if x.numel() * 2 > 2**31`, before a kernel that counts in 32 bits.

Nothing can be tried at such sizes. Whoever asks has no other size in mind, and a file that met one would need
gigabytes for that tensor alone: the bound is told and is no error.

Other guards may be tried at inputs of which a model makes much more, as decoders of pictures do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable

import sympy
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat

from exportguard.signature import raw_size
from exportguard.size_floats import FloatProduct, FloatSum

from .evaluation import Evaluation
from .expressions import Sizes

_VAST = 2**30  # entries, 4 GiB of float32
_RATIOS = 4  # numbers of entries, those most like what is counted, that are compared with it
_LARGEST = 2**28  # entries of a tensor that a trial may make, which needs several of them at once


def numbers_of_entries(nodes: Iterable[Node]) -> frozenset[sympy.Expr]:
    """How many entries the tensors of a program's nodes have, as they were traced, where that is no number."""
    shapes = set()
    for node in nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
                shapes.add(tuple(raw_size(size) for size in value.shape))
    return frozenset(math.prod(shape, start=sympy.Integer(1)) for shape in shapes)


class Room:
    """Whether what a program makes at other sizes has room in memory, as far as it tells its sizes by those."""

    def __init__(self, entries: Collection[sympy.Expr]) -> None:
        """`entries` are the numbers of entries of its tensors."""
        self._evaluations = [
            (symbols, Evaluation(number, symbols)) for number in entries if (symbols := _sorted(number))
        ]

    def is_there(self, sizes: Sizes) -> bool:
        known = (found for symbols, found in self._evaluations if sizes.keys() >= {*symbols})
        return all((found(sizes) or 0) <= _LARGEST for found in known)


def _sorted(number: sympy.Expr) -> list[sympy.Symbol]:
    return sorted(number.free_symbols, key=str)


def _is_true(comparison: sympy.Basic) -> bool:
    return bool(comparison == sympy.true)


def holds_for_tensors_in_memory(
    condition: sympy.Basic, entries: Collection[sympy.Expr], is_proved: Callable[[sympy.Basic], bool] = _is_true
) -> bool:
    """Whether a condition is met wherever one of the numbers of entries is no larger than 2^30.

    It says then that no more than a multiple of that number is no larger than a number. `is_proved` tells of a
    comparison of sizes whether it holds for all of them.

    >>> n, c = sympy.symbols("n c", positive=True, integer=True)
    >>> holds_for_tensors_in_memory(2 * n * c <= 2**31, [n * c])
    True
    >>> holds_for_tensors_in_memory(n**4 <= 2**31, [n, n**2])
    False
    >>> holds_for_tensors_in_memory(IntTrueDiv(2 * n * c, 2**30) <= 2.0, [n * c])
    True
    """
    if not isinstance(condition, sympy.LessThan | sympy.StrictLessThan) or not condition.rhs.is_number:
        return False
    counted, most = _without_floats(condition.lhs), sympy.Rational(condition.rhs) / _VAST
    if isinstance(condition, sympy.StrictLessThan):
        most -= sympy.Rational(1, 2**64)
    ratios = sorted({sympy.cancel(counted / number) for number in entries}, key=_complexity)
    return any(_is_at_most(ratio, most, is_proved) for ratio in ratios[:_RATIOS])


def _without_floats(counted: sympy.Expr) -> sympy.Expr:
    """The exact number that a float stands for: `x.numel() * 2 / 2**30` counts in gigabytes."""
    exact = counted.replace(IntTrueDiv, operator.truediv).replace(FloatTrueDiv, operator.truediv)
    exact = exact.replace(FloatProduct, operator.mul).replace(FloatSum, operator.add)
    return sympy.nsimplify(exact.replace(ToFloat, lambda number: number), rational=True)


def _complexity(ratio: sympy.Expr) -> tuple[int, int, str]:
    return len(ratio.free_symbols), int(sympy.count_ops(ratio)), str(ratio)


def _is_at_most(ratio: sympy.Expr, most: sympy.Expr, is_proved: Callable[[sympy.Basic], bool]) -> bool:
    """Whether how often what is counted has each entry is no more than a number, for all sizes."""
    if ratio.is_number:
        return bool(ratio.is_positive and ratio <= most)
    above, below = sympy.fraction(ratio)
    return is_proved(sympy.Le(above, sympy.floor(most) * below)) and is_proved(sympy.Ge(below, 1))
