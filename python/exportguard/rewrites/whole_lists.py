"""Lists that a branch or a step makes longer and shorter, or reads while it fills them: rows of one tensor.

Such a list is one part before the branch or the step, and one behind it: what the graph hands on is a tensor of another
number of rows, as any variable may be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import Collected, Grown, Maybe, joined, linked, number_rows, rows_are_numbers
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import Captured, record
from exportguard.rewrites.sized_lists import Filling, Unfilled
from exportguard.rewrites.state import MISSING, Slot
from exportguard.source.errors import RewriteError


class Whole:
    """A list that is rows of one tensor before and behind something.

    :param known: what its elements are like; None if it has some itself
    """

    def __init__(self, grown: Grown, known: Likeness | None = None) -> None:
        self._grown = grown
        self._known = known

    def become_rows(self) -> None:
        """Makes one part of all that the list has, or had.

        :raises RewriteError: its elements are not known to be of one size
        """
        if self._grown.tail is not None:
            self._grown.tail.refuse()
        parts = self._grown.parts
        if not parts and self._known is None:
            return
        if len(parts) == 1 and isinstance(parts[0], Unfilled):
            if self._known is not None:
                list.__setitem__(self._grown, slice(None), [self._known.filling(parts[0])])
            return
        if len(parts) != 1 or not isinstance(parts[0], Collected):
            list.__setitem__(self._grown, slice(None), [self._joined(parts)])
        self._known = self._known or Likeness(self._grown.parts[0])

    def _joined(self, parts: Sequence[Any]) -> Collected:
        if not parts:
            assert self._known is not None
            return self._known.none()
        shapes = [[leaf.shape[1:] for leaf in pytree.tree_leaves(joined([part]).rows)] for part in parts]
        if any(_may_differ(one, other) for known in shapes for one, other in zip(shapes[0], known, strict=False)):
            raise RewriteError(
                f"{line_now()}: a branch or a step of a loop over tensors reads a list that it fills, or makes it "
                "shorter, and its elements are of several sizes; a graph holds them as rows of one tensor: join what "
                "the steps make, out = torch.cat([out, part]), or pad it to one size"
            )
        return linked(joined(parts), parts)


class Likeness:
    """What the elements of a list are like: of rows that may be of a run which is no part of the program."""

    def __init__(self, rows: Collected) -> None:
        content = rows.content if isinstance(rows, Filling) else rows.rows
        self._form = pytree.tree_map(lambda leaf: _Form(leaf), content)

    def none(self) -> Collected:
        """No rows of that kind."""
        return Collected(pytree.tree_map(lambda form: form.none(), self._form))

    def filling(self, unfilled: Unfilled) -> Filling:
        """A list of which nothing is there yet, for elements of that kind."""
        return unfilled.filling(*pytree.tree_flatten(self.none().rows))


class _Form:
    def __init__(self, rows: torch.Tensor) -> None:
        self._shape, self._dtype, self._device = tuple(rows.shape[1:]), rows.dtype, rows.device
        self._are_numbers = rows_are_numbers(rows)

    def none(self) -> torch.Tensor:
        rows = torch.zeros((2, *self._shape), dtype=self._dtype, device=self._device)
        none = rows[:0]  # torch 2.11 to 2.13 keep the value of a tensor that is made without elements
        return number_rows(none) if self._are_numbers else none


def _may_differ(one: torch.Size, other: torch.Size) -> bool:
    with disable_proxy_modes_tracing():
        return len(one) == len(other) and not all(map(statically_known_true, map(operator.eq, one, other)))


def is_remade(slot: Slot, before: object, now: object) -> bool:
    """Whether a step or a branch takes an element out of a list, or makes rows of it."""
    is_element = isinstance(slot.owner, Grown) and slot.kind == "element" and before is not MISSING
    if is_element and isinstance(before, Unfilled):
        return not isinstance(now, Unfilled)
    return is_element and not isinstance(before, Collected) and (now is MISSING or isinstance(now, Collected | Maybe))


def remade_in(
    changes: Iterable[tuple[Slot, Any]], before: Callable[[Slot], Any]
) -> tuple[list[Grown], list[Likeness | None]]:
    """The lists that a step takes an element out of or makes rows of, and what their elements are like, if it says so.

    :param before: what a place held in front of the step
    """
    found = [(slot.owner, new) for slot, new in changes if is_remade(slot, before(slot), new)]
    return [owner for owner, _ in found], [_likeness_of(new) for _, new in found]


def of_two_forms(
    slots: Iterable[Slot], before: Callable[[Slot], Any], outcomes: Sequence[Sequence[Any]]
) -> list[Whole]:
    """Lists of which one of two branches makes rows, or which one makes shorter.

    :param before: what a place held in front of them
    :param outcomes: for each branch what the places hold behind it
    """
    found: dict[int, Whole] = {}
    for slot, *values in zip(slots, *outcomes, strict=True):
        are_rows = {isinstance(value, Collected) for value in values if value is not MISSING}
        is_of_a_list = isinstance(slot.owner, Grown) and slot.kind == "element"
        if is_of_a_list and (len(are_rows) > 1 or any(is_remade(slot, before(slot), value) for value in values)):
            found[id(slot.owner)] = Whole(slot.owner, next(filter(None, map(_likeness_of, values)), None))
    return [*found.values()]


def _likeness_of(part: object) -> Likeness | None:
    """What the elements of a list are like that a run has begun to fill."""
    return record(lambda: Likeness(part), Captured()) if isinstance(part, Filling) else None
