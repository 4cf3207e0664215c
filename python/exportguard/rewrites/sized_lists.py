"""`[value] * n` of a size: as many rows, and where the value is None a list that is filled later by `out[i] = …`.

What the elements of `[None] * n` are like is known by the first one that is put there. From then on the list is rows of
tensors with a mask of those that were filled. To read another one ends a run: what eager mode does with None behind a
read is not followed. A loop or a branch that fills a list which is older has to begin with rows, and is analysed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.collected import (
    Collected,
    Grown,
    chosen,
    joined,
    like_rows,
    linked,
    register,
    row_of,
)
from exportguard.rewrites.ends_of_runs import entries
from exportguard.rewrites.numbers import as_number, number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.source.errors import RewriteError


def of_a_size(parts: Sequence[Any], count: torch.SymInt) -> Grown:
    """`parts * count`.

    :raises RewriteError: the elements are not of one kind
    """
    length: Any = torch.sym_max(count, 0)  # type: ignore[no-untyped-call]
    if not parts:
        return Grown()
    if all(part is None for part in parts):
        return Grown([Unfilled(torch.zeros((length * len(parts),), dtype=torch.bool))])
    rows = pytree.tree_map(lambda leaf: like_rows(_repeated(leaf, length), leaf), joined(parts).rows)
    made = Grown([linked(Collected(rows), parts)])
    for part in parts:
        made.lend(part)
    return made


def _repeated(leaf: torch.Tensor, count: Any) -> torch.Tensor:
    return leaf.repeat(count, *(1 for _ in leaf.shape[1:]))


class Unfilled(Collected):
    """Elements that are all None, whose kind nothing tells yet.

    :param is_filled: a truth value for each, all false
    """

    def __init__(self, is_filled: torch.Tensor) -> None:
        object.__setattr__(self, "is_filled", is_filled)

    is_filled: torch.Tensor
    __eq__, __hash__ = object.__eq__, object.__hash__

    @property
    def rows(self) -> Any:
        raise RewriteError(
            f"{line_now()}: an element of a list of as many None as a size says is read before any was put there, and "
            "nothing tells what elements it has: put one there before the loop or the test (`out[0] = …`), begin with "
            "tensors or numbers ([0.0] * n), or have a tensor for the list: table = torch.zeros(n, m)"
        )

    @property
    def length(self) -> Any:
        return self.is_filled.shape[0]

    def at(self, index: object) -> Any:
        return self.rows

    def sliced(self, index: slice) -> Collected:
        return self.rows  # type: ignore[no-any-return]

    def is_none_at(self, index: Any) -> bool:
        """Whether an element is None, as all are."""
        return True

    def filling(self, kinds: Sequence[torch.Tensor], spec: pytree.TreeSpec) -> Filling:
        """The same, for elements like these rows."""
        made = [like_rows(torch.zeros((self.length, *k.shape[1:]), dtype=k.dtype, device=k.device), k) for k in kinds]
        return Filling(pytree.tree_unflatten(made, spec), self.is_filled)


class Filling(Collected):
    """Elements of which those are there that a mask tells; the others are None.

    :param content: the rows, of which those of None mean nothing
    :param is_filled: a truth value for each
    """

    def __init__(self, content: Any, is_filled: torch.Tensor) -> None:
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "is_filled", is_filled)

    content: Any
    is_filled: torch.Tensor
    __eq__, __hash__ = object.__eq__, object.__hash__

    @property
    def rows(self) -> Any:
        """All elements, of which none is None, or a run ends."""
        places = self._there(torch.arange(self.length))
        return pytree.tree_map(lambda leaf: like_rows(_rows_at(leaf, places), leaf), self.content)

    @property
    def length(self) -> Any:
        return self.is_filled.shape[0]

    def at(self, index: object) -> Any:
        places = self._there(self._place(index))
        found = pytree.tree_map(lambda leaf: like_rows(_rows_at(leaf, places), leaf), self.content)
        return pytree.tree_map(lambda leaf: row_of(leaf, 0), found)

    def is_none_at(self, index: Any) -> torch.Tensor:
        """Whether an element is None, as a truth value of the run."""
        return as_number(torch.logical_not(_rows_at(self.is_filled, self._place(index))).reshape(()))

    def those_there(self) -> Collected:
        """The elements that are not None."""
        found = chosen(self.content, self.is_filled)
        return linked(found, [self])

    def _place(self, index: Any) -> torch.Tensor:
        """A number of the list, from its beginning."""
        place = number_tensor(index).reshape(1).to(torch.int64)
        return torch.where(place < 0, place + self.length, place)

    def sliced(self, index: slice) -> Collected:
        if index.step is not None and index.step < 0:
            return super().sliced(index)
        content = pytree.tree_map(lambda leaf: like_rows(leaf[index], leaf), self.content)
        return Filling(content, self.is_filled[index])

    def with_entry(self, place: torch.Tensor, content: Any) -> Filling:
        """The same, of which one more is there."""
        return Filling(content, self.is_filled.index_put((place,), torch.ones(1, dtype=torch.bool)))

    def _there(self, places: torch.Tensor) -> torch.Tensor:
        """The places, and for those of None one behind the last."""
        require_no_handler((TypeError, AttributeError), "None, which an element of a list may be")
        return torch.where(self.is_filled[places], places, self.length)


def _rows_at(leaf: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The rows at some places: a run ends where a list has none."""
    found = entries(leaf, places)
    aliases_now().link(found, [leaf])
    return found


register(Unfilled, lambda part: [part.is_filled], lambda parts: Unfilled(*parts))
register(Filling, lambda part: [part.content, part.is_filled], lambda parts: Filling(*parts))
