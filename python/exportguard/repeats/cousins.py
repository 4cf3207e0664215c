"""Earlier paths that a block goes along with while it is traced, until it can go on as one of them did.

Axes without names have symbols of their own in each layer, which torch finds equal in the middle of it, or never: what
has them is traced in each layer, and what comes behind it and does not ask for them is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import sympy

from exportguard.repeats.keys import Local
from exportguard.repeats.paths import Step

_MOST = 3  # paths that are followed at a time


class Meeting(NamedTuple):
    """The step of an earlier path that a block can go on behind, and the numbers of values that look otherwise here."""

    step: Step
    apart: frozenset[int]


class Cousins:
    """The steps where earlier paths are, each with the calls since they parted, beside those of the block."""

    def __init__(self) -> None:
        self._followed: list[tuple[Step, list[tuple[Step, Step]]]] = []

    def met(self, step: Step, siblings: Sequence[Step], shape_env: Any) -> Meeting | None:
        """The step of an earlier path behind which a block can go on as that did; None if there is none.

        `step` is the call that was just traced, `siblings` are others behind the same call. The values of the two paths
        have the same numbers. Some may look otherwise, if the next calls of the earlier path do not ask for them.
        """
        candidates: list[tuple[Step, list[tuple[Step, Step]]]] = [(other, []) for other in siblings]
        for followed, pairs in self._followed:
            candidates += [(child, pairs) for child in followed.children.values()]

        self._followed = []
        for other, pairs in candidates:
            if other.is_detour or other is step or not step.goes_like(other):
                continue
            pairs = [*pairs, (step, other)]
            apart = frozenset(number for pair in pairs for number in _numbers_apart(pair, shape_env))
            if other.children and not any(_asks_for(key, apart) for key in other.children):
                self._followed = []
                for own, _ in pairs:
                    own.is_detour = True
                return Meeting(other, apart)
            if len(self._followed) < _MOST:
                self._followed.append((other, pairs))
        return None


def _numbers_apart(pair: tuple[Step, Step], shape_env: Any) -> Iterator[int]:
    """The numbers of what two calls take from outside and make, if some of it looks otherwise in one of them."""
    one, other = pair
    if _now(one.looks(), shape_env) != _now(other.looks(), shape_env):
        yield from range(one.first - len(one.outside), one.first + len(one.templates))


def _asks_for(key: Any, numbers: Set[int]) -> bool:
    """Whether a call with this key is given one of the values."""
    if isinstance(key, tuple):
        return any(_asks_for(part, numbers) for part in key)
    return type(key) is Local and key.number in numbers


def _now(look: Any, shape_env: Any) -> Any:
    """What a tensor looks like, in the symbols that are left of those that it was made with."""
    if isinstance(look, tuple):
        return tuple([_now(part, shape_env) for part in look])
    is_symbolic = shape_env is not None and isinstance(look, sympy.Basic) and look.free_symbols
    return shape_env.replace(look) if is_symbolic else look
