"""Loops that fill lists of elements of several sizes: they carry what is in each list so far as one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from exportguard.rewrites.collected import Collected, Grown, Maybe, linked, number_rows
from exportguard.rewrites.numbers import is_number
from exportguard.rewrites.packed_rows import (
    Parts,
    Pool,
    SizesDifferError,
    differing_axes,
    fills_packed,
    parts_of_pool,
)
from exportguard.rewrites.places import line_now
from exportguard.rewrites.state import Slot
from exportguard.source.errors import RewriteError

Body = Callable[..., tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True)
class _Packed:
    """A list that a loop fills.

    :param elements: what a step for the analysis appended
    :param axis: along which their sizes differ
    :param start: no elements, with that axis in front
    """

    owner: Grown
    elements: Sequence[Any]
    axis: int
    start: torch.Tensor

    @property
    def each_step(self) -> int | None:
        """How many elements each step appends; None if that differs."""
        is_plain = all(isinstance(element, torch.Tensor) for element in self.elements)
        return len(self.elements) if is_plain else None


class Packing:
    """The lists of a loop whose elements have several sizes: two variables each that are added to those of the model.

    :param lists: what the steps append to them
    """

    def __init__(self, lists: Sequence[_Packed]) -> None:
        self._lists = lists
        self._begins = [len(packed.owner.parts) for packed in lists]

    @property
    def names(self) -> list[str]:
        """Of the variables that are added."""
        return [name for _ in self._lists for name in ("the elements of a list", "the sizes of the elements")]

    def start(self) -> tuple[Any, ...]:
        """What they hold before the loop."""
        return tuple(made for packed in self._lists for made in (packed.start, torch.zeros((0,), dtype=torch.int64)))

    def around(self, body: Body) -> Body:
        """The body of a loop that carries them as well."""
        lists = self._lists  # what the body reads is found by the variables of functions
        begins = self._begins

        def step(*current: Any) -> tuple[Any, tuple[Any, ...]]:
            count = len(current) - 2 * len(lists)
            goes_on, after = body(*current[:count])
            held = [current[k : k + 2] for k in range(count, len(current), 2)]
            together = zip(lists, begins, held, strict=True)
            grown = [_with_the_new(packed, begin, *pair) for packed, begin, pair in together]
            return goes_on, (*after, *(tensor for pair in grown for tensor in pair))

        return step

    def around_test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """The test of a `while`, which knows nothing of them."""
        count = 2 * len(self._lists)
        return lambda *current: test(*current[:-count])

    def fill(self, outputs: Sequence[torch.Tensor], steps: Any = None) -> None:
        """Appends what the loop made.

        :param steps: how many it had, if that is known
        """
        for k, packed in enumerate(self._lists):
            elements, lengths = outputs[2 * k : 2 * k + 2]
            if steps is not None and packed.each_step is not None:
                torch._check(lengths.shape[0] == steps * packed.each_step)  # type: ignore[no-untyped-call]
            made = Collected(parts_of_pool(Pool(elements, packed.axis), lengths, number_rows))
            linked(Collected(elements), packed.elements)
            list.append(packed.owner, made)


def _with_the_new(
    packed: _Packed, begin: int, elements: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is in a list behind a step, whose elements are taken out of it."""
    new = packed.owner.parts[begin:]
    list.__delitem__(packed.owner, slice(begin, None))
    for part in new:
        elements, lengths = _with_one(packed, part, elements, lengths)
    return elements, lengths


def _with_one(
    packed: _Packed, part: Any, elements: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    is_there = part.is_there.reshape(1) if isinstance(part, Maybe) else None
    value = part.value if isinstance(part, Maybe) else part
    if isinstance(value, Collected):
        rows, counts = value.rows.together(), value.rows.lengths
    else:
        size: Any = value.shape[packed.axis]
        rows, counts = value.movedim(packed.axis, 0), torch.scalar_tensor(size, dtype=torch.int64).reshape(1)
    if is_there is not None:
        rows, counts = rows[is_there.expand(rows.shape[0])], counts[is_there.expand(counts.shape[0])]
    return torch.cat([elements, rows]), torch.cat([lengths, counts])


def packing_of(slots: Sequence[Slot], elements: Sequence[Any], own_symbols: set[Any]) -> Packing | None:
    """What packs the lists of a loop that hold elements of several sizes, if it was asked for.

    :param slots: the elements that a step appends, each with its list
    :param elements: what a run for the analysis appended
    :param own_symbols: of the sizes that a step makes
    :raises SizesDifferError: a step appends elements of several sizes, as a loop in it does, to a list that is not
        packed
    """
    line = line_now()
    lists: dict[int, tuple[Grown, list[Any]]] = {}
    for slot, element in zip(slots, elements, strict=True):
        lists.setdefault(id(slot.owner), (slot.owner, []))[1].append(element)
    are_packed = any(_is_of_parts(element) for element in elements)
    if are_packed and not fills_packed(line):
        raise SizesDifferError(f"{line}: a loop within a loop appends tensors of several sizes", frozenset((line,)))
    if not fills_packed(line):
        return None
    found = [_packed(owner, appended, own_symbols) for owner, appended in lists.values()]
    packed = [one for one in found if one is not None]
    return Packing(packed) if packed else None


def _is_of_parts(element: object) -> bool:
    return isinstance(element, Collected) and isinstance(element.rows, Parts)


def _packed(owner: Grown, elements: Sequence[Any], own_symbols: set[Any]) -> _Packed | None:
    """A list whose elements have sizes of a step; None for any other."""
    values = [element.value if isinstance(element, Maybe) else element for element in elements]
    parts = [value.rows for value in values if _is_of_parts(value)]
    tensors = [value for value in values if isinstance(value, torch.Tensor) and not is_number(value)]
    axes = {axis for tensor in tensors for axis, size in enumerate(tensor.shape) if _is_made(size, own_symbols)}
    axes |= {part.pool.axis for part in parts}
    axes |= differing_axes([tensor.shape for tensor in tensors])
    if not axes:
        return None
    shapes = {tuple(map(str, _rest(tensor.shape, axes))) for tensor in tensors}
    shapes |= {tuple(map(str, part.pool.tensor.shape[1:])) for part in parts}
    dtypes = {tensor.dtype for tensor in (*tensors, *(part.pool.tensor for part in parts))}
    if len(axes) > 1 or len(shapes) > 1 or len(dtypes) > 1 or len(parts) + len(tensors) < len(values):
        raise RewriteError(
            f"{line_now()}: a loop over tensors appends tensors to a list whose sizes differ along more than one axis, "
            "or beside others; a graph has them behind each other in one tensor: give them one dtype, and sizes that "
            "differ along one axis"
        )
    rest = _rest(tensors[0].shape, axes) if tensors else parts[0].pool.tensor.shape[1:]
    start = torch.zeros((0, *rest), dtype=dtypes.pop())
    return _Packed(owner, elements, axes.pop(), start)


def _rest(shape: Sequence[Any], axes: set[int]) -> tuple[Any, ...]:
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _is_made(size: object, own_symbols: set[Any]) -> bool:
    return isinstance(size, torch.SymInt) and bool(free_unbacked_symbols(size) & own_symbols)
