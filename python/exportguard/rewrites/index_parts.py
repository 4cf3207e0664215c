"""The parts of an index with the axes that they stand for, as torch reads them.

torch goes through an index from left to right. Numbers, slices, `None` and `...` give a view first: a number takes its
axis away, also beside tensors. What is left are tensors, lists and masks, which index that view together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from exportguard.rewrites.collected import is_open
from exportguard.rewrites.numbers import affine_of, is_number, number_tensor, surely

WHOLE = slice(None)
_SEQUENCES = (list, tuple, range)
_AS_TENSOR = 32  # elements from which on torch takes a list for a tensor, whatever it holds


def holds_open_lists(index: object) -> bool:
    """Whether a list is among the parts that has as many numbers as a loop or a size says."""
    return any(map(is_open, index if isinstance(index, tuple) else (index,)))


def parts_of(index: Any) -> tuple[Any, ...]:
    """The parts of an index; torch takes a list that holds tensors, slices or lists for a tuple.

    A list of as many numbers as a loop or a size says is a tensor of these.
    """
    if holds_open_lists(index):
        parts = index if isinstance(index, tuple) else (index,)
        return tuple(torch.as_tensor(part.rows().rows) if is_open(part) else part for part in parts)
    if isinstance(index, list) and len(index) < _AS_TENSOR:
        several = (torch.Tensor, slice, *_SEQUENCES)
        if any(item is None or item is ... or (isinstance(item, several) and not is_number(item)) for item in index):
            return tuple(index)
    return index if isinstance(index, tuple) else (index,)


def is_entry(part: object) -> bool:
    """Whether a part is one number that is a tensor."""
    return isinstance(part, torch.Tensor) and part.dim() == 0 and not is_mask(part)


def is_dynamic_slice(part: object) -> bool:
    """Whether a part is a slice between numbers that are tensors."""
    return isinstance(part, slice) and any(isinstance(b, torch.Tensor) for b in (part.start, part.stop, part.step))


def holds_numbers(part: object) -> bool:
    """Whether a part is a list of numbers that Python does not know."""
    if not isinstance(part, list | tuple):
        return False
    return any(isinstance(item, torch.Tensor | torch.SymInt) or holds_numbers(item) for item in part)


def is_choosing(part: object) -> bool:
    """Whether a part chooses entries together with others: a tensor or a mask."""
    return isinstance(part, torch.Tensor) and not is_entry(part)


@dataclass(frozen=True)
class Window:
    """A slice whose length is known, by the places that it stands for."""

    places: torch.Tensor


def is_of_the_run(part: object) -> bool:
    """Whether a part is known only when the program runs, and is no tensor of the model's own that chooses."""
    return isinstance(part, torch.SymInt) or is_entry(part) or is_dynamic_slice(part) or holds_numbers(part)


def axes_of(part: object) -> int:
    """How many axes of a tensor one part of an index stands for."""
    if part is None or isinstance(part, bool | torch.SymBool):
        return 0
    return part.dim() if isinstance(part, torch.Tensor) and is_mask(part) else 1


def spelled_out(container: torch.Tensor, parts: Sequence[Any]) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """A view and the index of the same entries in it, without `...`, lists and truth values."""
    listed = [as_tensor(part) if isinstance(part, _SEQUENCES) else part for part in parts]
    filling = (WHOLE,) * (container.dim() - sum(axes_of(part) for part in listed if part is not ...))
    filled = [piece for part in listed for piece in (filling if part is ... else (part,))]
    if not any(map(_is_truth, filled)):
        return container, tuple(filled)
    index = [piece for part in filled for piece in ((WHOLE,) * axes_of(part) or (None,))]
    return container[tuple(index)], tuple(_behind_new_axes(part) for part in filled)


def _is_truth(part: object) -> bool:
    return axes_of(part) == 0 and part is not None


def _behind_new_axes(part: Any) -> Any:
    """What is left of a part where `None` and truth values have made their axes, of which a truth value chooses one."""
    if part is None:
        return WHOLE
    if isinstance(part, bool):
        return torch.zeros(int(part), dtype=torch.int64)
    return number_tensor(part).bool().reshape(1) if _is_truth(part) else part


def as_tensor(part: Any) -> torch.Tensor:
    """A list of numbers, or of lists, as a tensor."""
    if not holds_numbers(part):
        are_truths = bool(part) and all(isinstance(item, bool) for item in part)
        known = [place for place, item in enumerate(part) if item] if are_truths else [*part]
        return torch.tensor(known) if known else torch.zeros(0, dtype=torch.int64)
    items = [as_tensor(item) if isinstance(item, _SEQUENCES) else number_tensor(item) for item in part]
    is_mask = all(item.dtype == torch.bool for item in items)
    return torch.stack([item if is_mask else item.to(torch.int64) for item in items])


def viewed(container: torch.Tensor, parts: Sequence[Any]) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """The view that numbers, slices and `None` give, and what is left of the parts: those that choose, and `:`."""
    kept = tuple(part if is_choosing(part) else WHOLE for part in parts if not isinstance(part, int | torch.SymInt))
    axes = itertools.accumulate(map(axes_of, parts), initial=0)
    for part, axis in reversed([*zip(parts, axes, strict=False)]):
        if isinstance(part, torch.SymInt):  # which C++ asks for its value
            container = container.select(axis, part)
    named = [part for part in parts if not isinstance(part, torch.SymInt)]
    index = [piece for part in named for piece in ((WHOLE,) * axes_of(part) if is_choosing(part) else (part,))]
    return (container if is_all(index) else container[tuple(index)]), kept


def beside_masks(choosing: Sequence[Any]) -> tuple[Any, ...]:
    """What chooses together, with the places of a mask in its place: torch itself knows a mask that chooses alone, and
    of one beside others not how many entries it chooses."""
    if sum(map(is_choosing, choosing)) < 2 or not any(map(is_mask, choosing)):
        return tuple(choosing)
    pieces = ((part.nonzero(as_tuple=True) if is_mask(part) else (_counted(part),)) for part in choosing)
    return tuple(itertools.chain.from_iterable(pieces))


def _counted(part: Any) -> Any:
    """A tensor whose sizes data count. Beside such a size torch takes a dynamic one for equal to it, though it may be 1
    where the other one is not."""
    for axis, size in enumerate(part.shape if is_choosing(part) else ()):
        if isinstance(size, torch.SymInt) and not has_free_unbacked_symbols(size):
            part = part.index_select(axis, torch.ones(size, dtype=torch.bool).nonzero().squeeze(1))
    return part


def is_mask(part: object) -> bool:
    """Whether a part chooses where it is true; one without axes has that of a new one."""
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _is_whole(part: object) -> bool:
    return isinstance(part, slice) and part.start is None and part.stop is None and part.step is None


def is_all(parts: Sequence[Any]) -> bool:
    """Whether parts leave nothing out."""
    return all(map(_is_whole, parts))


def with_windows(container: torch.Tensor, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Slices between numbers of a loop as the places that they stand for, where their length is known."""
    axes = itertools.accumulate(map(axes_of, parts), initial=0)
    return tuple(
        _window(part, container.shape[axis]) if is_dynamic_slice(part) else part
        for part, axis in zip(parts, axes, strict=False)
    )


def _window(part: slice, size: object) -> Any:
    """`i:i + 3` as three places if `0 <= i` and `i + 3 <= size` are sure; else with bounds that torch asks for."""
    first, last = affine_of(part.start), affine_of(part.stop)
    is_sure = (
        first is not None
        and last is not None
        and first.root is last.root
        and first.low is not None
        and first.high is not None
        and part.step is None
        and surely(lambda: first.low + first.offset >= 0)
        and surely(lambda: first.high + last.offset <= size)
    )
    if is_sure and first is not None and last is not None:
        return Window(part.start + torch.arange(max(last.offset - first.offset, 0)))
    return slice(*(_as_size(bound) for bound in (part.start, part.stop, part.step)))


def _as_size(bound: object) -> Any:
    """A bound that is a tensor as the number that torch makes of it."""
    return bound.item() if isinstance(bound, torch.Tensor) else bound


@dataclass(frozen=True)
class Step:
    """The first entry or window of an index: a view, the rows of it that are meant, and the index of those."""

    view: torch.Tensor
    rows: tuple[Any, ...]
    rest: tuple[Any, ...]
    is_direct: bool  # whether the rest leaves nothing out, and what is written there has the shape of the rows


def step_of(container: torch.Tensor, parts: tuple[Any, ...]) -> Step | None:
    """The part of the run that comes first; what stands before it is chosen before, but for what chooses together."""
    place = next((k for k, part in enumerate(parts) if is_entry(part) or isinstance(part, Window)), None)
    if place is None:
        return None
    part = parts[place]
    view, before = viewed(container, parts[:place])
    axis = sum(map(axes_of, before))
    is_window = isinstance(part, Window)
    rows = (*(WHOLE,) * axis, part.places if is_window else part.reshape(1))
    is_direct = is_all((*before, *parts[place + 1 :])) and (is_window or not axis)
    return Step(view, rows, (*before, WHOLE if is_window else 0, *parts[place + 1 :]), is_direct)
