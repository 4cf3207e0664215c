"""Lists that a branch or a step makes longer and shorter, or reads while it fills them: rows of one tensor.

Such a list is one part before the branch or the step, and one behind it: what the graph hands on is a tensor of another
number of rows, as any variable may be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import Collected, Grown, Maybe, joined, like_rows, linked
from exportguard.rewrites.places import line_now
from exportguard.rewrites.state import MISSING, Slot
from exportguard.source.errors import RewriteError

Result = TypeVar("Result")


class Whole:
    """A list that is rows of one tensor before and behind something."""

    def __init__(self, grown: Grown) -> None:
        self._grown = grown
        self._known: Collected | None = None  # what was in it once

    def become_rows(self) -> None:
        """Makes one part of all that the list has, or had.

        :raises RewriteError: its elements are not known to be of one size
        """
        if self._grown.tail is not None:
            self._grown.tail.refuse()
        parts = self._grown.parts
        if not parts and self._known is None:
            return
        if len(parts) != 1 or not isinstance(parts[0], Collected):
            list.__setitem__(self._grown, slice(None), [self._joined(parts)])
        self._known = self._known or self._grown.parts[0]

    def _joined(self, parts: Sequence[Any]) -> Collected:
        if not parts:
            assert self._known is not None
            return _none_of(self._known)
        shapes = [[leaf.shape[1:] for leaf in pytree.tree_leaves(joined([part]).rows)] for part in parts]
        if any(_may_differ(one, other) for known in shapes for one, other in zip(shapes[0], known, strict=False)):
            raise RewriteError(
                f"{line_now()}: a branch or a step of a loop over tensors reads a list that it fills, or makes it "
                "shorter, and its elements are of several sizes; a graph holds them as rows of one tensor: join what "
                "the steps make, out = torch.cat([out, part]), or pad it to one size"
            )
        return linked(joined(parts), parts)


def _none_of(rows: Collected) -> Collected:
    """No rows of a kind, made anew: those at hand may be of a run that is no part of the program."""

    def empty(leaf: torch.Tensor) -> torch.Tensor:
        return like_rows(torch.zeros((0, *leaf.shape[1:]), dtype=leaf.dtype, device=leaf.device), leaf)

    return Collected(pytree.tree_map(empty, rows.rows))


def _may_differ(one: torch.Size, other: torch.Size) -> bool:
    with disable_proxy_modes_tracing():
        return len(one) == len(other) and not all(map(statically_known_true, map(operator.eq, one, other)))


def is_remade(slot: Slot, before: object, now: object) -> bool:
    """Whether a step or a branch takes an element out of a list, or makes rows of it."""
    is_element = isinstance(slot.owner, Grown) and slot.kind == "element" and before is not MISSING
    return is_element and not isinstance(before, Collected) and (now is MISSING or isinstance(now, Collected | Maybe))


def of_two_forms(
    slots: Iterable[Slot], before: Callable[[Slot], Any], outcomes: Sequence[Sequence[Any]]
) -> list[Grown]:
    """Lists of which one of two branches makes rows, or which one makes shorter.

    :param before: what a place held in front of them
    :param outcomes: for each branch what the places hold behind it
    """
    found: dict[int, Grown] = {}
    for slot, *values in zip(slots, *outcomes, strict=True):
        are_rows = {isinstance(value, Collected) for value in values if value is not MISSING}
        is_of_a_list = isinstance(slot.owner, Grown) and slot.kind == "element"
        if is_of_a_list and (len(are_rows) > 1 or any(is_remade(slot, before(slot), value) for value in values)):
            found[id(slot.owner)] = slot.owner
    return [*found.values()]


def leaving_rows(branch: Callable[[], Result], lists: Sequence[Whole]) -> Callable[[], Result]:
    """A branch behind which lists are rows of one tensor."""

    def made() -> Result:
        result = branch()
        for whole in lists:
            whole.become_rows()
        return result

    return made
