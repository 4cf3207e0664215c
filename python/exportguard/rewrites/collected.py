"""Lists that loops fill: their length is known only when the program runs.

A list of a rewritten function is a `Grown` while a program is traced: a list whose parts are elements, as in every
list, or `Collected` rows of a loop of symbolic length, or an element that tensor data may have left out (`Maybe`).
What Python asks of such a list is answered with tensors or refused; nothing reads it as if a part were an element.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import torch
from torch.utils import _pytree as pytree

from exportguard.model_code import is_users
from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.ends_of_runs import all_but, first_place, place_of, require_element
from exportguard.rewrites.lent import Lent, may_change
from exportguard.rewrites.numbers import as_number, is_number, number_tensor, require_one_kind
from exportguard.rewrites.packed_rows import (
    Parts,
    SizesDifferError,
    as_elements,
    axis_of_sizes,
    note_rows,
    pooled,
    several_sizes,
)
from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_SCALARS = (bool, int, float, torch.SymInt, torch.SymFloat)
_NUMBERS = "exportguard_rows_are_numbers"
_SIZES_OF_STEPS = "exportguard_sizes_of_steps"


class UnknownLengthError(RewriteError):
    """A list whose length only a run knows is used by code that is not rewritten."""


def refuse(what: str, kind: type[RewriteError] = RewriteError) -> NoReturn:
    """Refuses what a list cannot do whose length only a run knows."""
    raise kind(
        f"{line_now()}: a list that a loop over tensors fills, or that a size makes, has as many elements as the loop "
        f"has steps, and {what} needs their number when the program is traced; use torch.stack(…) or torch.cat(…) of "
        "it, an index, a slice or a loop, or have a tensor in its place: table = torch.zeros(n, m), table[i, j] = …"
    )


class _NotATensor:
    """What torch functions must not take for an element: the watch over the export gives them tensors instead."""

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> NoReturn:
        refuse(f"torch.{getattr(func, '__name__', func)}")


@dataclass(frozen=True)
class Collected(_NotATensor):
    """What the steps of a loop made: a pytree of tensors with a common first axis."""

    rows: Any

    @property
    def length(self) -> Any:
        return pytree.tree_leaves(self.rows)[0].shape[0]

    def at(self, index: object) -> Any:
        """The element of a number, which may be a tensor or negative."""
        if isinstance(index, int):
            require_element(index, self.length)
        return as_elements(pytree.tree_map(lambda leaf: row_of(leaf, index), self.rows))

    def without(self, index: int) -> Collected:
        """The elements but one; a run ends where there is none of that number."""
        kept = all_but(index, self.length)
        return Collected(pytree.tree_map(lambda leaf: like_rows(leaf.index_select(0, kept), leaf), self.rows))

    def sliced(self, index: slice) -> Collected:
        """The elements of a slice with any step."""
        if index.step is None or index.step > 0:
            return Collected(pytree.tree_map(lambda leaf: like_rows(leaf[index], leaf), self.rows))
        if index.start is not None or index.stop is not None:
            refuse("a slice with bounds and a negative step")
        flipped = pytree.tree_map(lambda leaf: like_rows(leaf.flip(0), leaf), self.rows)
        return Collected(flipped).sliced(slice(None, None, -index.step))


@dataclass(frozen=True)
class Maybe(_NotATensor):
    """An element that is in the list where `is_there`, a truth value of tensor data, says so."""

    value: Any
    is_there: Any

    def as_rows(self) -> Collected:
        """One row or none."""
        rows = pytree.tree_map(lambda leaf: _as_rows(leaf), self.value)
        return chosen(rows, number_tensor(self.is_there).reshape(1))


def chosen(rows: object, are_there: torch.Tensor) -> Collected:
    """The rows where a mask is true."""
    return Collected(pytree.tree_map(lambda leaf: like_rows(leaf[are_there], leaf), rows))


def row_of(leaf: torch.Tensor, index: Any) -> torch.Tensor:
    """A row, which is a number if the rows stand for numbers, else a part of them, as it is one in Python."""
    is_number_of_run = isinstance(index, torch.Tensor | torch.SymInt)
    position = number_tensor(index).reshape(1) if is_number_of_run else None
    row = leaf[index] if position is None else leaf[position].squeeze(0)
    if rows_are_numbers(leaf):
        return as_number(row)
    if position is not None:
        aliases_now().link(row, [leaf])
    return row


def like_a_row(leaf: torch.Tensor) -> torch.Tensor:
    """What stands for any row where there may be none."""
    row = torch.empty(leaf.shape[1:], dtype=leaf.dtype, device=leaf.device)
    if not rows_are_numbers(leaf):
        aliases_now().link(row, [leaf])
    return row


def like_rows(rows: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Marks rows as numbers if those of `leaf` are, and as what may have other sizes in each step."""
    for mark in (_NUMBERS, _SIZES_OF_STEPS):
        if hasattr(leaf, mark):
            setattr(rows, mark, getattr(leaf, mark))
    return rows


def mark_sizes(rows: torch.Tensor, line: str) -> None:
    """Marks rows whose sizes were made in the steps of a loop: they are one tensor only if all steps made the same."""
    setattr(rows, _SIZES_OF_STEPS, line)
    note_rows(line)


def note_stacked(parts: Iterable[Any]) -> None:
    """Notes that something makes one tensor of elements, which have one size then."""
    for leaf in _leaves_of(parts):
        if hasattr(leaf, _SIZES_OF_STEPS):
            note_rows(getattr(leaf, _SIZES_OF_STEPS), are_stacked=True)


def _leaves_of(parts: Iterable[Any]) -> list[Any]:
    return [leaf for part in parts for leaf in pytree.tree_leaves(_collected(part))]


def number_rows(rows: torch.Tensor) -> torch.Tensor:
    """Marks the rows of a tensor of rank 1 as Python numbers."""
    setattr(rows, _NUMBERS, True)
    return rows


def rows_are_numbers(leaf: object) -> bool:
    """Whether the rows of a tensor stand for Python numbers."""
    return isinstance(leaf, torch.Tensor) and hasattr(leaf, _NUMBERS)


def is_of_numbers(leaf: object) -> bool:
    """Whether a leaf stands for Python numbers alone: one, or those of the rows of a list."""
    return not isinstance(leaf, torch.Tensor) or is_number(leaf) or rows_are_numbers(leaf)


def _as_rows(element: object) -> torch.Tensor:
    require_one_kind(element, "be an element of a list that a loop over tensors fills")
    if isinstance(element, torch.Tensor) and not is_number(element):
        return element.unsqueeze(0)
    if isinstance(element, torch.Tensor | bool | int | float | torch.SymInt | torch.SymFloat):
        return number_rows(number_tensor(element).reshape(1))
    raise RewriteError(
        f"a list that a loop over tensors fills has an element of type {type(element).__name__}; only tensors and "
        "numbers can be collected"
    )


def joined(parts: Iterable[Any], *, promotes: bool = False, packs: bool = False) -> Collected:
    """The parts of a list as one, which have to be alike.

    :param promotes: whether elements of different dtypes become those of the widest, as torch.stack makes them
    :param packs: whether those whose sizes data decide may lie behind each other in one tensor
    """
    found = [*map(_collected, parts)]
    if len(found) == 1:
        return found[0]
    pieces = [part.rows for part in found]
    axis = axis_of_sizes(pieces)
    if axis is not None and not packs:
        raise several_sizes()
    if axis is not None or any(isinstance(piece, Parts) for piece in pieces):
        return Collected(pooled(pieces, number_rows, axis))
    specs = [pytree.tree_structure(piece) for piece in pieces]
    if any(spec != specs[0] for spec in specs):
        raise RewriteError("a list that a loop over tensors fills has elements of different structure")
    if not promotes:
        pytree.tree_map(_require_one_dtype, *pieces)
    return Collected(pytree.tree_map(lambda *leaves: like_rows(torch.cat(leaves), leaves[0]), *pieces))


def linked(rows: Collected, parts: Sequence[Any]) -> Collected:
    """Rows of which each one is an element of these parts in Python, not a copy."""
    sources = [leaf for part in parts for leaf in pytree.tree_leaves(part) if isinstance(leaf, torch.Tensor)]
    for leaf in pytree.tree_leaves(rows):
        if not rows_are_numbers(leaf):
            aliases_now().link(leaf, sources)
    return rows


def _require_one_dtype(*leaves: torch.Tensor) -> None:
    dtypes = {leaf.dtype for leaf in leaves}
    if len(dtypes) > 1:
        raise RewriteError(
            f"a list that a loop over tensors fills has elements of {' and '.join(sorted(map(str, dtypes)))}; an "
            "index, a slice or a loop cannot tell which is which: give them one dtype"
        )


def _collected(part: object) -> Collected:
    if isinstance(part, Maybe):
        return part.as_rows()
    return part if isinstance(part, Collected) else Collected(pytree.tree_map(_as_rows, part))


def require_one_size(parts: Iterable[Any], what: str) -> None:
    """Refuses elements whose sizes may differ.

    :param what: is done with them
    """
    leaves = _leaves_of(parts)
    loops = frozenset(getattr(leaf, _SIZES_OF_STEPS) for leaf in leaves if hasattr(leaf, _SIZES_OF_STEPS))
    if loops:
        raise SizesDifferError(
            f"{line_now()}: tensors that a loop over tensors appends to a list are {what}, whose size may be another "
            "one in each step, as that of `x[i:i + 2]` at the end of x, or of `x[:k]` for each k of a list; in a graph "
            "they are rows of one tensor: do in the loop what is done with each of them, pad them, go through parts "
            "that are whole, or use torch.stack(…), which wants one size",
            loops,
        )


_CLOCK = itertools.count(1)  # moments of a trace


def moment() -> int:
    """A moment behind all others so far."""
    return next(_CLOCK)


_MISSED: list[Any] = []  # lists that had no element where one was asked for


def take_missed() -> list[Any]:
    """The lists that had no element where one was asked for, since this was asked last."""
    missed = [*_MISSED]
    _MISSED.clear()
    return missed


def _kept(slot: str, default: object) -> Any:
    """An attribute of a list, which is made and copied in many ways: this until it is given a value."""
    return property(lambda self: getattr(self, slot, default), lambda self, value: setattr(self, slot, value))


class Grown(list[Any]):
    """A list that may have parts whose number of elements the program does not know."""

    __slots__ = ("__weakref__", "_is_carried", "_lent", "_read_at", "_tail")

    #: What answers for the list in a step of the loop that fills it (`own_lists.Tail`); None outside of one.
    tail = _kept("_tail", None)
    #: Whether a loop puts into it what its steps leave in a variable (`rebound_lists`).
    is_carried = _kept("_is_carried", False)

    def note_read(self) -> None:
        """Notes that its elements, their number or their order were asked for or changed now."""
        if self.tail is not None:
            self.tail.refuse()
        for lent in getattr(self, "_lent", ()):
            lent.require_unchanged()
        self._read_at = moment()

    def lend(self, element: Any) -> Any:
        """An element that is known as rows of tensors: who changes it in place changes a copy, which is to be seen."""
        if may_change(element):
            self._lent = [*getattr(self, "_lent", ()), Lent(element)]
        return element

    def was_read_since(self, begin: int) -> bool:
        """Whether it was read behind a moment."""
        return getattr(self, "_read_at", 0) > begin

    @property
    def parts(self) -> list[Any]:
        """What the list holds, with rows as they are."""
        return [*list.__iter__(self)]

    @property
    def is_open(self) -> bool:
        """Whether a part has a length that only the run knows."""
        return self.tail is not None or any(isinstance(part, Collected | Maybe) for part in self.parts)

    def rows(self) -> Collected:
        """All elements as rows of tensors, which may be any of them in memory."""
        self.note_read()
        require_one_size(self.parts, "taken from it one by one, or in another order")
        return linked(joined(self.parts, packs=True), self.parts)

    def length(self) -> Any:
        """The number of elements, which may be symbolic."""
        if self.tail is not None:
            return self.tail.length()
        self.note_read()
        return sum(_collected(p).length if isinstance(p, Collected | Maybe) else 1 for p in self.parts)

    def item(self, index: Any) -> Any:
        """`self[index]`, of any kind of index."""
        return self._item(index, self.lend)

    def _item(self, index: Any, lent: Callable[[Any], Any]) -> Any:
        if self.tail is not None:
            return self.tail.item(index)
        self.note_read()
        if not self.is_open and not isinstance(index, torch.Tensor):
            try:
                return list.__getitem__(self, index)
            except IndexError:
                _MISSED.append(self)
                raise
        if isinstance(index, slice):
            return Grown([self.rows().sliced(index)])
        if isinstance(index, int):
            plain = self._plain_before(reverse=index < 0)
            if place_of(index) < plain:
                return list.__getitem__(self, index)
        return lent(self.rows().at(index))

    def _plain_before(self, *, reverse: bool) -> int:
        parts = self.parts[::-1] if reverse else self.parts
        return next((k for k, p in enumerate(parts) if isinstance(p, Collected | Maybe)), len(parts))

    def __getitem__(self, index: object) -> Any:
        found = self.item(index)
        return Grown(found) if isinstance(index, slice) and not isinstance(found, Grown) else found

    def __len__(self) -> int:
        if self.is_open:
            refuse("len(…) outside of rewritten code", UnknownLengthError)
        return list.__len__(self)

    def __bool__(self) -> bool:
        if self.tail is not None:
            return bool(self.tail.is_filled or self.tail.length() > 0)
        self.note_read()
        if self.is_open and not any(not isinstance(p, Collected | Maybe) for p in self.parts):
            return bool(self.length() > 0)
        return bool(self.parts)

    def __iter__(self) -> Iterator[Any]:
        self.note_read()
        if self.is_open:
            refuse("going through it, or unpacking it,", UnknownLengthError)
        return list.__iter__(self)

    def __reversed__(self) -> Any:
        self.note_read()
        return Grown([self.rows().sliced(slice(None, None, -1))]) if self.is_open else list.__reversed__(self)

    def __add__(self, other: object) -> Any:
        self.note_read()
        return Grown([*self.parts, *parts_of(other)])

    def __radd__(self, other: object) -> Any:
        self.note_read()
        return Grown([*parts_of(other), *self.parts])

    def __iadd__(self, other: object) -> Any:
        list.extend(self, parts_of(other))
        return self

    def extend(self, other: object) -> None:
        list.extend(self, parts_of(other))

    def copy(self) -> Any:
        self.note_read()
        return Grown(self.parts)

    def insert(self, index: SupportsIndex, item: object) -> None:
        self.note_read()
        if self.is_open and index != 0:
            refuse("insert(…) behind its first element")
        list.insert(self, index, item)

    def pop(self, index: SupportsIndex = -1) -> Any:
        self.note_read()
        if not self.is_open:
            if not self.parts:
                _MISSED.append(self)
            return list.pop(self, index)
        if type(index) is not int:
            refuse("pop(…) of an element that data or a size decide")
        if place_of(index) < self._plain_before(reverse=index < 0):
            return list.pop(self, index)
        found = self._item(index, lambda element: element)
        list.__setitem__(self, slice(None), [self.rows().without(index)])
        return found

    def reverse(self) -> None:
        self.note_read()
        if self.is_open:
            list.__setitem__(self, slice(None), self.__reversed__().parts)
        else:
            list.reverse(self)

    def __setitem__(self, index: Any, item: Any) -> None:
        self.note_read()
        if self.is_open:
            from exportguard.rewrites.list_entries import put_entry  # which knows lists

            put_entry(item, self, index)
        else:
            list.__setitem__(self, index, item)

    def __delitem__(self, index: Any) -> None:
        if type(index) is int:
            self.pop(index)
            return
        self._close("del of several elements, or of one that data or a size decide,")
        list.__delitem__(self, index)

    def __contains__(self, item: object) -> bool:
        self._close("`in`")
        return list.__contains__(self, item)

    def __eq__(self, other: object) -> bool:
        self._close("a comparison")
        return list.__eq__(self, other)

    __hash__ = None

    def __mul__(self, count: SupportsIndex) -> Any:
        self._close("`*`")
        if not isinstance(count, torch.SymInt):
            return Grown(list.__mul__(self, count))
        from exportguard.rewrites.sized_lists import of_a_size  # which knows lists

        return of_a_size(self.parts, count)

    __rmul__ = __mul__

    def equal_to(self, item: object, what: str = "`in`") -> torch.Tensor:
        """For each of the numbers that the list holds whether it equals an item, as a tensor of truth values."""
        rows = self.rows().rows
        if not rows_are_numbers(rows) or (not isinstance(item, _SCALARS) and not is_number(item)):
            refuse(f"{what} of what is no number")
        number = number_tensor(item)
        is_float = rows.is_floating_point() or number.is_floating_point()
        return torch.eq(rows.double(), number.double()) if is_float else torch.eq(rows, number)

    def index(self, item: object, *bounds: Any) -> Any:
        if not self.is_open:
            self.note_read()
            return list.index(self, item, *bounds)
        if bounds:
            refuse("index(…) with bounds")
        return as_number(first_place(self.equal_to(item, "index(…)")))

    def count(self, item: object) -> Any:
        if not self.is_open:
            self.note_read()
            return list.count(self, item)
        return as_number(self.equal_to(item, "count(…)").sum())

    def remove(self, item: object) -> None:
        self._close("remove(…)")
        list.remove(self, item)

    def sort(self, **options: Any) -> None:
        self._close("sort(…)")
        list.sort(self, **options)

    def _close(self, what: str) -> None:
        self.note_read()
        if self.is_open:
            refuse(what)


def truth_of(item: Any) -> Any:
    """What a test asks of something: whether a list has elements may be known only when the program runs, and so may
    what the `__bool__` or the `__len__` of a class of the model's says."""
    if not is_open(item):
        own = own_method(item, "__bool__")
        if own is not None:
            return own(item)
        length = own_method(item, "__len__") if getattr(type(item), "__bool__", None) is None else None
        return item if length is None else length(item) != 0
    if item.tail is not None:
        return item.tail.is_filled or item.tail.length() > 0
    is_certain = any(not isinstance(part, Collected | Maybe) for part in item.parts)
    return True if is_certain else item.length() > 0


def own_method(item: object, name: str) -> Callable[..., Any] | None:
    """What a class of the model's says that Python makes of its objects: their truth, their length."""
    own = getattr(type(item), name, None)
    return own if isinstance(own, types.FunctionType) and is_users(own.__code__.co_filename) else None


class Unlisted:
    """What a list is made of when it is asked for."""

    def listed(self) -> Any:
        """Its elements as a list, which may be open."""
        raise NotImplementedError


def parts_of(other: Any) -> list[Any]:
    """The parts of a list, or the elements of anything else."""
    if isinstance(other, Unlisted):
        other = other.listed()
    length: Any = other.shape[0] if isinstance(other, torch.Tensor) and other.dim() else None
    if isinstance(length, torch.SymInt):
        return [Collected(other)]
    return other.parts if isinstance(other, Grown) else list(other)


def is_open(item: object) -> bool:
    """Whether something is a list with parts of unknown length."""
    return isinstance(item, Grown) and item.is_open


def holds_parts(item: object) -> bool:
    """Whether something is, or holds, a list or a number that only a trace knows."""
    if isinstance(item, list | tuple) and not isinstance(item, Grown):
        return any(holds_parts(element) for element in item)
    if isinstance(item, dict):
        return any(holds_parts(value) for value in item.values())
    return isinstance(item, Grown | Collected | Maybe) or is_number(item)


def require_closed(outputs: object) -> None:
    """Refuses an output of a model that is a list of unknown length."""
    for leaf in pytree.tree_leaves(outputs, is_leaf=is_open):
        if is_open(leaf):
            refuse("returning it from the model")


def plain(item: Any) -> Any:
    """What leaves a rewritten function: its lists as Python's, if their length is known."""
    if isinstance(item, Grown) and not item.is_open:
        return [plain(element) for element in item]
    if type(item) in (list, tuple):
        return type(item)(plain(element) for element in item)
    return {key: plain(value) for key, value in item.items()} if type(item) is dict else item


def register(cls: type, children: Callable[[Any], list[Any]], make: Callable[[list[Any]], Any]) -> None:
    """Has pytrees see what a part of a list holds."""

    def with_keys(item: object) -> tuple[list[tuple[Any, Any]], None]:
        return [(pytree.SequenceKey(k), child) for k, child in enumerate(children(item))], None

    pytree.register_pytree_node(
        cls,
        lambda item: (children(item), None),
        lambda parts, _: make([*parts]),
        flatten_with_keys_fn=with_keys,
    )


# Lists of branches are merged element by element, rows as tensors.
register(Grown, lambda grown: grown.parts, Grown)
register(Collected, lambda part: [part.rows], lambda parts: Collected(*parts))
register(Maybe, lambda part: [part.value, part.is_there], lambda parts: Maybe(*parts))


def made_outside(owner: object, line: int, what: str) -> RewriteError:
    """Why a container that grows on one way alone, or in a loop, is no list of the rewriting."""
    if isinstance(owner, collections.deque):
        return RewriteError(
            f"line {line}: {what} makes a deque longer, and no graph knows how many elements it holds then; fill it to "
            "its maxlen before, use a list and its last elements, rows[-3:], or have a tensor for the queue: "
            "queue = torch.cat([queue, row[None]]), row, queue = queue[0], queue[1:], while len(queue) > 0"
        )
    return RewriteError(
        f"line {line}: {what} appends to a list that was made outside of the function; make the list in the function "
        "that appends to it"
    )
