"""`list(range(n))` of a symbolic n: a list by its first number, its step and how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


@dataclass(frozen=True)
class Numbers:
    """`count` numbers from `start` on, behind those of `head`; it has the operators of a list that models use.

    >>> numbers = Numbers(start=0, step=1, count=6)
    >>> pooled = [-1] + numbers[1:-1][::2]
    >>> pooled[0], pooled[-1], length(pooled)
    (-1, 3, 3)
    """

    start: Any
    step: int
    count: Any
    head: tuple[Any, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(index.start or 0, index.stop, 1 if index.step is None else index.step)
        if index < 0:
            return self.start + (self.count + index) * self.step
        behind = index - len(self.head)
        return self.head[index] if behind < 0 else self.start + behind * self.step

    def __radd__(self, before: Sequence[Any]) -> Numbers:
        return Numbers(self.start, self.step, self.count, (*before, *self.head))

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a list of a symbolic length cannot be iterated over")

    def _part(self, first: int, stop: int | None, step: int) -> Numbers:
        is_cut = stop is not None and (stop >= 0 or step < 0)
        if first < 0 or is_cut or (step != 1 and len(self.head) > first) or (step < 0 and first):
            raise TypeError(f"a list of a symbolic length has no part [{first}:{stop}:{step}] here")
        skipped = max(first - len(self.head), 0)
        count = self.count - skipped + (stop or 0)
        if step < 0:
            return Numbers(self.start + (count - 1) * self.step, self.step * step, -(-count // -step))
        start = self.start + skipped * self.step
        return Numbers(start, self.step * step, (count + step - 1) // step, self.head[first:])


def numbers(*bounds: Any) -> Any:
    """`list(range(…))`, of one symbolic bound as well."""
    if len(bounds) == 1 and isinstance(bounds[0], torch.SymInt):
        return Numbers(0, 1, bounds[0])
    return list(range(*bounds))


def length(items: Any) -> Any:
    """`len`, also of such a list."""
    return len(items.head) + items.count if isinstance(items, Numbers) else len(items)


def as_tensor(items: object, **options: Any) -> torch.Tensor:
    """`torch.tensor`, also of such a list."""
    if not isinstance(items, Numbers):
        return torch.tensor(items, **options)
    options = {"dtype": torch.int64, **options}
    places: Any = torch.arange(items.count, **options)
    behind = items.start + places * items.step
    return torch.cat([torch.tensor(items.head, **options), behind]) if items.head else behind


#: What asks for the length of a list, or makes a tensor of one, knows such a list.
OfAnyLength = exchange(
    "OfAnyLength",
    ("list(range($end))", "numbers($end)"),
    ("list(range($start, $end))", "numbers($start, $end)"),
    ("list(range($start, $end, $step))", "numbers($start, $end, $step)"),
    ("len($items)", "length($items)"),
    ("torch.tensor", "as_tensor"),
)


_replace = rewrite(OfAnyLength, numbers=numbers, length=length, as_tensor=as_tensor)


PATCHES = (
    construct_patch(
        name="lists of numbers",
        marker=r"\blist\(range\(|\blen\(pooled_pos\)",
        mentions=("list(range(", "len(pooled_pos)"),
        replace=_replace,
        reason="a list of as many numbers as there are tokens fixes how many there are",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
