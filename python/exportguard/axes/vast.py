"""Guards that only vast tensors break: `if x.numel() * 2 > 2**31`, before a kernel that counts in 32 bits.

Nothing can be tried at such sizes. Whoever asks has no other size in mind, and a file that met one would need
gigabytes for that tensor alone: the bound is told and is no error.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import sympy
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from exportguard.signature import raw_size

_VAST = 2**30  # entries, 4 GiB of float32


def numbers_of_entries(nodes: Iterable[Node]) -> frozenset[sympy.Expr]:
    """How many entries the tensors of a program's nodes have, as they were traced, where that is no number."""
    found = set()
    for node in nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
                found.add(math.prod((raw_size(size) for size in value.shape), start=sympy.Integer(1)))
    return frozenset(found)


def holds_for_tensors_in_memory(condition: sympy.Basic, entries: Collection[sympy.Expr]) -> bool:
    """Whether a condition is met wherever one of the numbers of entries is no larger than 2^30.

    It says then that a multiple of that number is no larger than a number.

    >>> n, c = sympy.symbols("n c", positive=True, integer=True)
    >>> holds_for_tensors_in_memory(2 * n * c <= 2**31, [n * c])
    True
    >>> holds_for_tensors_in_memory(n**4 <= 2**31, [n, n**2])
    False
    """
    if not isinstance(condition, sympy.LessThan | sympy.StrictLessThan) or not condition.rhs.is_Integer:
        return False
    ratios = (sympy.cancel(condition.lhs / number) for number in entries)
    is_strict = isinstance(condition, sympy.StrictLessThan)
    return any(ratio.is_positive and ratio.is_number and ratio * _VAST <= condition.rhs - is_strict for ratio in ratios)
