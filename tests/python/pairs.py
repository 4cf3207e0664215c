"""Grids of cases, of which a test takes a part."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

_One = TypeVar("_One")
_Other = TypeVar("_Other")


def every_second(first: Iterable[_One], second: Iterable[_Other]) -> list[tuple[_One, _Other]]:
    """Every second pair of two lists, as the fields of one colour on a chessboard: each entry is in half of its pairs.

    >>> every_second("ab", [1, 2, 3])
    [('a', 1), ('a', 3), ('b', 2)]
    """
    pairs = itertools.product(enumerate(first), enumerate(second))
    return [(one, other) for (i, one), (j, other) in pairs if (i + j) % 2 == 0]
