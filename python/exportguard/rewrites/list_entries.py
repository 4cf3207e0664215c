"""`table[i] = value` for a list whose length only a run knows: its elements are rows of tensors, of which one is new.

All elements of such a list are of one kind and size, as rows are. What would make one of another kind, as a float among
ints, is refused: Python would have both kinds in the list, and what is made of it another dtype. Behind an assignment
the rows are other tensors than before; what was read from the list stays what it was, as in Python.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import Collected, Grown, joined, like_rows, linked, plain, refuse, rows_are_numbers
from exportguard.rewrites.numbers import is_number, number_tensor, require_one_kind
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.rewrites.sized_lists import Filling, Unfilled
from exportguard.source.errors import RewriteError

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def put_entry(content: Any, grown: Grown, index: Any) -> None:
    """`grown[index] = content`, where the list is open.

    :raises RewriteError: the element is of another kind or size than the others, or the index is no single number
    """
    if not _is_one_place(index):
        refuse("an assignment to several of its elements")
    before = grown.rows()
    place = _place_of(index, before.length)
    if isinstance(before, Unfilled):
        before = before.filling(*pytree.tree_flatten(joined([content]).rows))
    leaves, spec = pytree.tree_flatten(before.content if isinstance(before, Filling) else before.rows)
    new, spec_of_new = pytree.tree_flatten(plain(content))
    if pytree.tree_structure(plain(pytree.tree_unflatten([*range(len(leaves))], spec))) != spec_of_new:
        _refuse_kind("of another structure", "give it as many values as the others have, in containers of one kind")
    rows = [_with_one(leaf, place, _entry(leaf, part)) for leaf, part in zip(leaves, new, strict=True)]
    made = pytree.tree_unflatten(rows, spec)
    after = before.with_entry(place, made) if isinstance(before, Filling) else Collected(made)
    list.__setitem__(grown, slice(None), [linked(after, [before, content])])
    grown.lend(content)


def _is_one_place(index: object) -> bool:
    if isinstance(index, torch.Tensor):
        return index.numel() == 1 and not index.is_floating_point()
    return isinstance(index, int | torch.SymInt)


def _place_of(index: Any, length: Any) -> torch.Tensor:
    """The place as a tensor of one number. Where the list may not have it, a run ends, as Python does: no handler of
    the model may be there to take what Python raises."""
    if not isinstance(index, int) or has_free_unbacked_symbols(length):
        require_no_handler(IndexError, "an element that a list does not have")
    if isinstance(index, int):
        torch._check(length > (index if index >= 0 else -index - 1))  # type: ignore[no-untyped-call]
    return number_tensor(index).reshape(1).to(torch.int64)


def _entry(leaf: torch.Tensor, part: Any) -> torch.Tensor:
    """What becomes a row, of the kind and the size of the others."""
    if not rows_are_numbers(leaf):
        if not isinstance(part, torch.Tensor) or is_number(part) or part.dtype != leaf.dtype:
            _refuse_kind("that is no tensor of their dtype", "have it in a tensor, as torch.as_tensor(…) makes it")
        if not _are_one_size(part.shape, leaf.shape[1:]):
            _refuse_kind("of another size", "bring it to the size of the others")
        return part
    if not isinstance(part, _NUMBERS) and not is_number(part):
        _refuse_kind("that is a tensor, while they are numbers", "take its number: float(…), int(…) or .item()")
    require_one_kind(part, "be an element of a list whose length only a run knows")
    number = number_tensor(part)
    if number.dtype != leaf.dtype:
        _refuse_kind(
            "of another kind of number",
            "have one kind in it, as with table = [0.0] * n, and float(…), int(…) or bool(…) around the value",
        )
    return number


def _are_one_size(one: torch.Size, other: torch.Size) -> bool:
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def _with_one(leaf: torch.Tensor, place: torch.Tensor, entry: torch.Tensor) -> torch.Tensor:
    return like_rows(leaf.index_put((place,), entry.unsqueeze(0)), leaf)


def _refuse_kind(which: str, remedy: str) -> NoReturn:
    raise RewriteError(
        f"{line_now()}: a list that a loop over tensors fills, or that a size makes, is given an element {which}; a "
        f"graph holds all of them as rows of one tensor: {remedy}"
    )
