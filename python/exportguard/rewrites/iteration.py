"""What a loop can go through: rows of tensors, ranges of symbolic length, lists that loops filled."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import (
    Collected,
    Grown,
    is_open,
    like_a_row,
    like_rows,
    number_rows,
    own_method,
    row_of,
    rows_are_numbers,
)
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.numbers import Affine, as_number, number_tensor
from exportguard.rewrites.packed_rows import as_elements
from exportguard.source.errors import RewriteError

_SIZES = (int, torch.SymInt)
_WITH_STEP = 3  # bounds of a range


@dataclass(frozen=True)
class Steps:
    """A range whose number of steps depends on tensor data or on a size."""

    start: torch.Tensor
    step: Any
    count: torch.Tensor
    low: Any = None  # bounds of its numbers that are sizes
    high: Any = None

    def number(self, position: torch.Tensor) -> torch.Tensor:
        """The number of a step, with what is known of it."""
        is_counted = isinstance(self.step, int) and self.step == 1
        return as_number(self.start + position * self.step, Affine(object(), 0, self.low, self.high, is_counted))

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a range over tensor data can only be rewritten in a `for` statement of its own")


@dataclass(frozen=True)
class Rows:
    """Something to iterate over whose length is symbolic: a pytree of tensors with one common first axis."""

    tensors: Any
    low: Any = None  # bounds of the first leaf, where it holds the numbers of a range
    high: Any = None
    is_counted: bool = False  # whether they are low, low + 1, …
    lender: Grown | None = None  # the list that they are the elements of

    @property
    def length(self) -> Any:
        return pytree.tree_leaves(self.tensors)[0].shape[0]

    def at(self, index: object) -> Any:
        """The row of a number, which may be a tensor itself."""
        return as_elements(self.item([row_of(leaf, index) for leaf in pytree.tree_leaves(self.tensors)]))

    def like_one(self) -> Any:
        """What stands for a row while it is looked at what a step does: there may be none."""
        return self.item([like_a_row(leaf) for leaf in pytree.tree_leaves(self.tensors)])

    def item(self, leaves: list[torch.Tensor]) -> Any:
        """The row that has these leaves, its numbers marked as such. What stands for an element of a pool is to become
        it in the body that takes it, which then reads the pool."""
        flags = [rows_are_numbers(leaf) for leaf in pytree.tree_leaves(self.tensors)]
        known = Affine(object(), 0, self.low, self.high, self.is_counted)
        marked = [
            as_number(leaf, known if k == 0 else None) if is_one else leaf
            for k, (leaf, is_one) in builtins.enumerate(builtins.zip(leaves, flags, strict=True))
        ]
        made = pytree.tree_unflatten(marked, pytree.tree_structure(self.tensors))
        return made if self.lender is None else self.lender.lend(made)

    def first(self) -> Any:
        """The first row; a number that is counted from is one that Python knows."""
        if not self.is_counted or not isinstance(self.low, int):
            return self.at(0)
        leaves, spec = pytree.tree_flatten(self.tensors)
        return pytree.tree_unflatten([self.low, *(row_of(leaf, 0) for leaf in leaves[1:])], spec)

    def behind_the_first(self) -> Rows:
        """The rows without the first."""
        rest = self.mapped(lambda leaf: leaf[1:])
        return replace(rest, low=self.low + 1, is_counted=True) if self.is_counted else rest

    def reversed(self) -> Rows:
        """The rows from the last to the first."""
        return self.mapped(lambda leaf: leaf.flip(0))

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Rows:
        """The rows that a function of whole tensors gives."""
        changed = pytree.tree_map(lambda leaf: like_rows(change(leaf), leaf), self.tensors)
        return Rows(changed, self.low, self.high, lender=self.lender)

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a loop over a symbolic length can only be rewritten as a `for` statement of its own")


@dataclass(frozen=True)
class SymbolicRange:
    """The numbers of a range with a start and a symbolic bound."""

    numbers: tuple[Any, ...]
    steps: Steps

    @property
    def length(self) -> Any:
        """How many numbers there are; below 0 where there are none."""
        return _count_of(*self.numbers)

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a range of a symbolic size can only be rewritten in a `for` statement of its own")


def rows_of(iterable: Any) -> Rows | None:
    """The rows of what has a symbolic length; None for everything that Python can iterate over."""
    if isinstance(iterable, Rows):
        return iterable
    if isinstance(iterable, SymbolicRange):
        steps = iterable.steps
        return Rows(
            _numbers_of(*iterable.numbers),
            steps.low,
            steps.high,
            is_counted=isinstance(steps.step, int) and steps.step == 1,
        )
    if is_open(iterable):
        return Rows(iterable.rows().rows, lender=iterable)
    is_symbolic = (
        isinstance(iterable, torch.Tensor) and iterable.dim() > 0 and isinstance(iterable.shape[0], torch.SymInt)
    )
    return Rows(iterable) if is_symbolic else None


def len_(sized: Any) -> Any:
    """`len`, which leaves a symbolic size as it is."""
    if isinstance(sized, Grown):
        return sized.length()
    if isinstance(sized, torch.Tensor) and sized.dim():
        return sized.shape[0]
    own = own_method(sized, "__len__")
    return len(sized) if own is None else own(sized)  # whose answer may be a number of tensor data


def range_(*bounds: Any) -> Iterable[Any]:
    """`range`, with symbolic bounds and bounds from tensor data as well."""
    if any(depends_on_data(bound) for bound in bounds):
        return steps_between(*bounds) if len(bounds) > 1 else steps_between(0, *bounds)
    numbers: list[Any] = [b.item() if isinstance(b, torch.Tensor) else b for b in bounds]
    if not any(isinstance(number, torch.SymInt) for number in numbers):
        return builtins.range(*numbers)
    if len(numbers) == _WITH_STEP and _is_one_step(*numbers):
        return [numbers[0]]
    if len(numbers) == 1:
        return Rows(_numbers_of(0, *numbers), 0, numbers[0] - 1, is_counted=True)
    return SymbolicRange(tuple(numbers), steps_between(*numbers))


def _numbers_of(start: Any, stop: Any, step: Any = 1) -> torch.Tensor:
    """The numbers of a range as rows: none where it ends before it starts, of which torch would make a negative size.

    Where torch takes for granted that there are some, as of sizes from 2 up, it is asked: sizes at which there are none
    are then tried.
    """
    count = _count_of(start, stop, step)
    is_known = statically_known_true(count >= 0) and bool(count >= 0)
    count = count if is_known else torch.sym_max(count, 0)  # type: ignore[no-untyped-call]
    is_one = isinstance(step, int) and step == 1
    return number_rows(torch.arange(start, start + count) if is_one else torch.arange(count) * step + start)


def _count_of(start: Any, stop: Any, step: Any = 1) -> Any:
    first, last = (start, stop) if step > 0 else (stop, start)
    return (last - first + abs(step) - 1) // abs(step)


def _is_one_step(start: Any, stop: Any, step: Any) -> bool:
    """Whether a range steps from its start to its end at once, whatever its length is."""
    return statically_known_true(step > 0) and statically_known_true(stop - start == step)


def steps_between(start: Any, stop: Any, step: Any = 1) -> Steps:
    """The steps of a range whose bounds only a run may know.

    :raises RewriteError: the step is a number that only a run knows
    """
    is_known = isinstance(step, _SIZES) and not depends_on_data(step)
    if not is_known:
        raise RewriteError("the step of a range of unknown length must be a number that Python knows, or a size")
    first, last = number_tensor(start), number_tensor(stop)
    beyond = step - 1 if step > 0 else step + 1
    count = torch.clamp((last - first + beyond) // step, min=0)
    low, high = (start, stop - 1) if step > 0 else (stop + 1, start)
    sizes = [bound if isinstance(bound, _SIZES) else None for bound in (low, high)]
    return Steps(first, step, count, *sizes)


def steps_of(rows: Rows) -> Steps:
    """The positions of rows as a range."""
    start = torch.zeros((), dtype=torch.int64)
    return Steps(start, 1, torch.scalar_tensor(rows.length, dtype=torch.int64), 0, rows.length - 1)


def enumerate_rows(iterable: Any, start: int = 0) -> Iterable[Any]:
    """`enumerate`, over a symbolic length as well."""
    rows = rows_of(iterable)
    if rows is None:
        return builtins.enumerate(iterable, start)
    numbers = number_rows(torch.arange(start, start + rows.length))
    return Rows((numbers, rows.tensors), start, start + rows.length - 1, is_counted=True)


def zip_rows(*iterables: Any, strict: bool = False) -> Iterable[Any]:
    """`zip`, over symbolic lengths as well."""
    rows = [rows_of(iterable) for iterable in iterables]
    if all(r is None for r in rows):
        return builtins.zip(*iterables, strict=strict)
    parts = [r.tensors if r is not None else i for r, i in builtins.zip(rows, iterables, strict=True)]
    if not all(isinstance(leaf, torch.Tensor) for part in parts for leaf in pytree.tree_leaves(part)):
        raise RewriteError("zip of a tensor of symbolic length with a Python list; make the list a tensor")
    length = min(pytree.tree_leaves(part)[0].shape[0] for part in parts) if not strict else None
    if length is not None:
        parts = [pytree.tree_map(lambda t: like_rows(t[:length], t), part) for part in parts]
    return Rows(tuple(parts))


def reversed_(sequence: Any) -> Any:
    """`reversed`, of what has a symbolic length as well."""
    if is_open(sequence):
        return sequence[::-1]
    if isinstance(sequence, torch.Tensor) and rows_of(sequence) is None:
        return sequence.flip(0)
    rows = rows_of(sequence)
    return builtins.reversed(sequence) if rows is None else rows.reversed()


def tolist(tensor: Any) -> Any:
    """`tensor.tolist()`, which leaves a list of symbolic length a tensor of numbers, and numbers that are no integers
    tensors of rank 0, as `item` does."""
    is_symbolic = isinstance(tensor, torch.Tensor) and tensor.dim() in (1, 2) and _is_size(tensor.shape[0])
    if not is_symbolic or not all(isinstance(size, int) for size in tensor.shape[1:]):
        is_of_data = isinstance(tensor, torch.Tensor) and depends_on_data(tensor)
        is_known = is_of_data and all(isinstance(size, int) for size in tensor.shape)
        stays_a_tensor = is_known and (tensor.is_floating_point() or tensor.dtype == torch.bool)
        return _listed(tensor.to(_number_dtype(tensor.dtype), copy=True)) if stays_a_tensor else tensor.tolist()
    numbers = tensor.to(_number_dtype(tensor.dtype))
    columns = [number_rows(column) for column in numbers.unbind(1)] if numbers.dim() > 1 else number_rows(numbers)
    return Grown([Collected(columns)])


def _listed(numbers: torch.Tensor) -> Any:
    """The numbers as lists of a known length."""
    return [_listed(part) for part in numbers.unbind(0)] if numbers.dim() else as_number(numbers)


def _is_size(size: object) -> bool:
    return isinstance(size, torch.SymInt)


def _number_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.bool:
        return dtype
    return torch.float64 if dtype.is_floating_point else torch.int64


def unbind(tensor: Any, dim: int = 0) -> Any:
    """`tensor.unbind(dim)`, along a symbolic axis as well."""
    if isinstance(tensor, torch.Tensor) and isinstance(tensor.shape[dim], torch.SymInt):
        return Grown([Collected(torch.movedim(tensor, dim, 0))])
    return tensor.unbind(dim)


def div(number: Any, divisor: Any, *, rounding_mode: str | None = None, **options: Any) -> Any:
    """`torch.div`, which leaves the quotient of sizes a size."""
    numbers = (number, divisor)
    are_sizes = any(isinstance(n, torch.SymInt) for n in numbers) and all(isinstance(n, _SIZES) for n in numbers)
    is_exact = rounding_mode == "floor" or (
        rounding_mode == "trunc" and are_sizes and all(statically_known_true(n >= 0) for n in numbers)
    )
    if not are_sizes or not is_exact:
        return torch.div(number, divisor, rounding_mode=rounding_mode, **options)
    return number // divisor
