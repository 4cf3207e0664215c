"""Lists that are filled by a loop whose steps are of different sizes: it carries the rows that each list has so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.carrying import Kind
from exportguard.rewrites.collected import Collected, Maybe, chosen, joined, like_rows, linked
from exportguard.rewrites.packed_rows import SizesDifferError, axis_of_sizes, several_sizes
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import Captured, record
from exportguard.rewrites.state import Slot
from exportguard.source.errors import RewriteError


class GrowingLists:
    """The lists that the steps of a loop fill, as tensors of their rows.

    :param slots: the elements that a step appends, each with its list
    :param elements: what a run for the analysis appended
    :param own_symbols: of the sizes that a step makes
    :param line: of the loop, for errors
    :raises RewriteError: the rows of a list have no common size
    """

    def __init__(self, slots: Sequence[Slot], elements: Sequence[Any], own_symbols: set[Any], line: int) -> None:
        self._slots = slots
        self._line = line
        self._parts = self._by_list(elements)
        self._examples = record(lambda: self.rows_of(elements), Captured())
        leaves, self._spec = pytree.tree_flatten([rows.rows for rows in self._examples])
        self._kinds = [Kind(tuple(leaf.shape), leaf.dtype, is_number=False).along(frozenset((0,))) for leaf in leaves]
        sizes = (size for kind in self._kinds for size in kind.shape[1:] if isinstance(size, torch.SymInt))
        if any(free_unbacked_symbols(size) & own_symbols for size in sizes):
            raise SizesDifferError(
                f"line {line}: a loop over tensors, which carries a tensor of another size in each step, appends one "
                "to a list; a graph holds the list as rows of one tensor: append rows of one size, or join what the "
                "steps make: out = torch.cat([out, part])",
                frozenset((line_now(),)),
            )

    @property
    def count(self) -> int:
        """How many tensors the loop carries for them."""
        return len(self._kinds)

    def _by_list(self, elements: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
        """Each list with what a step appends to it."""
        lists: dict[int, tuple[Any, list[Any]]] = {}
        for slot, element in zip(self._slots, elements, strict=True):
            lists.setdefault(id(slot.owner), (slot.owner, []))[1].append(element)
        return [*lists.values()]

    def rows_of(self, elements: Sequence[Any]) -> list[Collected]:
        """What a step appends, as rows of each list."""
        return [joined(parts) for _, parts in self._by_list(elements)]

    def start(self) -> list[torch.Tensor]:
        """No rows of each list."""
        return [kind.received(torch.zeros(kind.shape, dtype=kind.dtype)) for kind in self._kinds]

    def grown(self, carried: Sequence[torch.Tensor], elements: Sequence[Any]) -> list[torch.Tensor]:
        """The rows behind a step, as the loop carries them."""
        leaves, spec = pytree.tree_flatten([rows.rows for rows in self.rows_of(elements)])
        if spec != self._spec:
            raise RewriteError(
                f"line {self._line}: the steps of a loop append elements of different structure to a list"
            )
        together = zip(self._kinds, carried, leaves, strict=True)
        return [kind.handed_on(torch.cat([kind.received(t), leaf.to(t.dtype)]), t) for kind, t, leaf in together]

    def fill(self, outputs: Sequence[torch.Tensor], stand_ins: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Appends the rows that the loop made, and returns them.

        :param stand_ins: what stood for the rows of these lists in the analysis
        """
        examples = pytree.tree_leaves([rows.rows for rows in self._examples])
        together = zip(self._kinds, outputs, examples, strict=True)
        leaves = [like_rows(kind.received(output), example) for kind, output, example in together]
        for (owner, parts), rows in zip(self._parts, pytree.tree_unflatten(leaves, self._spec), strict=True):
            list.append(owner, linked(Collected(rows), [*parts, *stand_ins]))
        return leaves


def in_turn(parts: list[Any]) -> Collected:
    """The rows of one list: of each step its first element, then its second."""
    if len(parts) == 1 and not isinstance(parts[0], Maybe | Collected):
        return Collected(parts[0])
    rows = [part.value if isinstance(part, Maybe) else part for part in parts]
    plain = [row.rows if isinstance(row, Collected) else row for row in rows]
    if len({str(pytree.tree_structure(row)) for row in plain}) > 1:
        raise RewriteError("a loop over tensors appends elements of different structure to one list")
    if axis_of_sizes([row for row in rows if not isinstance(row, Collected)]) is not None:
        raise several_sizes()
    counted = [_of_each_step(row) for row in rows]
    together = pytree.tree_map(lambda *leaves: like_rows(torch.cat(leaves, 1).flatten(0, 1), leaves[0]), *counted)
    if not any(isinstance(part, Maybe) for part in parts):
        return Collected(together)
    are_there = [_are_there(part, row) for part, row in zip(parts, counted, strict=True)]
    return chosen(together, torch.cat(are_there, 1).flatten())


def _of_each_step(rows: object) -> Any:
    """What the steps made with an axis for the elements of one step: a loop within the step made many."""
    if isinstance(rows, Collected):
        return rows.rows
    return pytree.tree_map(lambda leaf: like_rows(leaf.unsqueeze(1), leaf), rows)


def _are_there(part: object, rows: object) -> torch.Tensor:
    """For each step and element whether it is in the list."""
    counts = pytree.tree_leaves(rows)[0].shape[:2]
    if not isinstance(part, Maybe):
        return torch.ones(counts, dtype=torch.bool)
    there: torch.Tensor = part.is_there
    return there.unsqueeze(1).expand(counts)
