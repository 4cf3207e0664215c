"""What a loop carries from step to step: found by running its body until the types of its variables stay the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.broadcasting import require_shapes, source_of
from exportguard.rewrites.collected import number_rows, rows_are_numbers
from exportguard.rewrites.contents import RandomState
from exportguard.rewrites.data import describe
from exportguard.rewrites.nothing import NOTHING, NoneMetError
from exportguard.rewrites.numbers import as_number, is_number, kinds_of, may_be, number_tensor
from exportguard.rewrites.resizing import sized_anew, taken_for
from exportguard.rewrites.state import MISSING, UNDEFINED
from exportguard.source.errors import RewriteError

_SYMBOLS = torch.SymInt | torch.SymFloat | torch.SymBool
NUMBERS = bool | int | float | _SYMBOLS


class UnstableError(RewriteError):
    """The variables of a loop are not of one kind before it and behind a step.

    :param before: the variables before it, where they are of two structures
    :param behind: those behind a step
    """

    def __init__(self, text: str, before: Sequence[Any] = (), behind: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.before = before
        self.behind = behind


class NoneUnstableError(UnstableError, NoneMetError):
    """One of them is None before the loop or behind a step."""


def unstable_of(before: Sequence[Any], behind: Sequence[Any]) -> type[UnstableError]:
    """The error for variables that are not of one kind before a loop and behind a step."""
    pairs = zip(before, behind, strict=True)
    return NoneUnstableError if any((a is None) != (b is None) for a, b in pairs) else UnstableError


def is_leaf(item: object) -> bool:
    """What pytree must not open."""
    return item is None or item is UNDEFINED


@dataclass(frozen=True)
class Kind:
    """The tensor that stands for a variable in a graph."""

    shape: tuple[Any, ...]
    dtype: torch.dtype
    is_number: bool
    kinds: frozenset[int] = frozenset()  # of Python numbers that it may be
    source: str = ""  # which number, if it has axes all the same
    resized: frozenset[int] = frozenset()  # axes along which a step may leave another size; their sizes mean nothing
    of_numbers: bool = False  # whether its rows are the numbers of a list

    @property
    def rank(self) -> int:
        """Of its dtype: truth values, integers, floats, complex numbers."""
        return 3 if self.dtype.is_complex else 2 if self.dtype.is_floating_point else self.dtype != torch.bool

    def make(self) -> torch.Tensor:
        """A tensor of this kind, of which only the kind matters."""
        return self.standing_for(self.received(torch.empty(self.shape, dtype=self.dtype)))

    def received(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that a loop carries as its step, its test and what follows it see it."""
        return sized_anew(tensor, sorted(self.resized)) if self.resized else tensor

    def handed_on(self, tensor: torch.Tensor, carried: torch.Tensor) -> torch.Tensor:
        """What a step leaves, as the loop carries it.

        :param carried: what the step was given
        """
        return taken_for(tensor, carried) if self.resized else tensor

    def start(self, value: object) -> torch.Tensor:
        """What the variable holds before the loop."""
        if value is UNDEFINED or value is NOTHING:
            return torch.zeros(self.shape, dtype=self.dtype)
        tensor = number_tensor(value)
        tensor = tensor if tensor.dtype == self.dtype else tensor.to(self.dtype)
        return tensor.expand(self.shape) if tensor.dim() != len(self.shape) else tensor

    def standing_for(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the program sees it."""
        if self.of_numbers:
            return number_rows(tensor)
        return as_number(tensor, kinds=self.kinds) if self.is_number else may_be(tensor, self.kinds, self.source)

    def is_like(self, other: Kind) -> bool:
        """Whether a tensor may be of either kind, but for its sizes.

        The numbers of a list are none beside tensors: what is made of them has another dtype.
        """
        marks = ((kind.dtype, len(kind.shape), kind.of_numbers) for kind in (self, other))
        return next(marks) == next(marks)

    def behind_a_step(self) -> Kind:
        """The kind of a variable behind a loop that takes a step: a tensor with axes is no number then."""
        return replace(self, kinds=frozenset(), source="") if self.source else self

    def joined(self, other: Kind) -> Kind:
        """This kind, which is the wider one, for what is of the other kind on another path."""
        return replace(self, kinds=self.kinds | other.kinds, source=self.source or other.source)

    def along(self, axes: frozenset[int]) -> Kind:
        """This kind for a tensor that steps give other sizes along these axes."""
        shape = tuple(0 if axis in axes else size for axis, size in enumerate(self.shape))
        return replace(self, shape=shape, resized=axes)


def kind_of(item: object) -> Kind:
    """The kind of a tensor or a number."""
    if isinstance(item, torch.Tensor) and not is_number(item):
        require_shapes((item,))
        shape, kinds, source = tuple(item.shape), kinds_of(item), source_of(item)
        return Kind(shape, item.dtype, is_number=False, kinds=kinds, source=source, of_numbers=rows_are_numbers(item))
    if isinstance(item, torch.Tensor):
        dtype = torch.float64 if item.is_floating_point() else item.dtype
        return Kind((), dtype, is_number=True, kinds=kinds_of(item))
    is_float = isinstance(item, float | torch.SymFloat)
    dtype = torch.float64 if is_float else torch.bool if isinstance(item, bool | torch.SymBool) else torch.int64
    return Kind((), dtype, is_number=True, kinds=kinds_of(item))


def same(start: object, end: object) -> bool:
    """Whether a step leaves a variable as it is."""
    if start is end:
        return True
    if isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor):
        return False
    if isinstance(start, weakref.ref) and isinstance(end, weakref.ref):
        return start() is end()  # Python compares what they refer to, which for tensors are their elements
    if isinstance(start, _SYMBOLS) and type(start) is type(end):
        return bool(start.node.expr == end.node.expr)
    return type(start) is type(end) and bool(start == end)


class Kinds:
    """The variables of one loop that its steps change, with the kind of tensor that each becomes."""

    def __init__(self, line: int, names: Sequence[str]) -> None:
        self._line = line
        self._names = names
        self.of: dict[int, Kind] = {}
        self.give_shapes = False  # whether a number before the loop is a tensor with axes behind a step
        self._first_resized: tuple[Callable[[], str], object, object] | None = (
            None  # its name, what it is before a step and behind it
        )
        self._left: dict[int, tuple[Any, ...]] = {}  # the shapes that the last step left

    @property
    def are_resized(self) -> bool:
        """Whether a step may leave a tensor of another size."""
        return any(kind.resized for kind in self.of.values())

    def steps_differ(self, own_symbols: set[Any]) -> bool:
        """Whether each step may leave another size; not where it is another one before the loop alone.

        :param own_symbols: of what a step makes, and of the tensors that stood for variables in it
        """
        sizes = [self._left[place][axis] for place, kind in self.of.items() for axis in kind.resized]
        return self.are_resized and _has_size_of(sizes, own_symbols)

    def require_steps_to_differ(self, own_symbols: set[Any]) -> None:
        """Refuses variables that have another size before the loop alone: behind the first step they are of one size.

        :param own_symbols: as `steps_differ` takes them
        :raises UnstableError: all steps leave the same sizes
        """
        if self._first_resized is not None and not self.steps_differ(own_symbols):
            raise self._unstable(*self._first_resized)

    def widen(self, place: int, start: object, end: object, name: Callable[[], str], own_symbols: set[Any]) -> bool:
        """Takes in what a step makes of a variable; whether its kind changed.

        :param name: what the model calls it, which takes time to find out
        :param own_symbols: of the sizes that the step makes from tensor data
        :raises UnstableError: no tensor can be what it is before the step and behind it
        """
        known = self.of.get(place)
        if known is None and same(start, end):
            return False
        wanted = self._joined(known, start, end, name, own_symbols)
        self.of[place] = wanted
        self._left[place] = tuple(end.shape) if isinstance(end, torch.Tensor) else ()
        return known is None or not _is_same_kind(known, wanted)

    def _joined(
        self, known: Kind | None, start: object, end: object, name: Callable[[], str], own_symbols: set[Any]
    ) -> Kind:
        if end is NOTHING and (known is not None or isinstance(start, torch.Tensor | NUMBERS)):
            return known or kind_of(start)
        if not isinstance(end, torch.Tensor | NUMBERS):
            raise self._unstable(name, start, end)
        after = kind_of(end)
        if start is UNDEFINED or start is NOTHING:
            made = [axis for axis, size in enumerate(after.shape) if _has_size_of([size], own_symbols)]
            after = after.along(frozenset(made)) if made else after
            return self._both(known, after, name, start, end) if known is not None else after
        if not isinstance(start, torch.Tensor | NUMBERS):
            raise self._unstable(name, start, end)
        return self._both(known or kind_of(start), after, name, start, end)

    def _both(self, first: Kind, second: Kind, name: Callable[[], str], start: object, end: object) -> Kind:
        if first.is_number and second.is_number:
            return first.joined(second) if first.rank >= second.rank else second.joined(first)
        if first.is_number or second.is_number:
            number, tensor = (first, second) if first.is_number else (second, first)
            is_fitting = number.rank <= tensor.rank and not tensor.resized and (first.is_number or not tensor.shape)
            if not is_fitting:
                raise self._unstable(name, start, end)
            self.give_shapes |= bool(tensor.shape)
            source = f"{name()} in line {self._line}" if tensor.shape else ""
            return replace(tensor.joined(number), source=tensor.source or source)
        if not first.is_like(second):
            raise self._unstable(name, start, end)
        differing = _differing_axes(first.shape, second.shape)
        axes = differing | first.resized | second.resized
        if not axes:
            return first.joined(second)
        self._first_resized = self._first_resized or (name, start, end)
        return first.joined(second).along(axes)

    def _unstable(self, name: Callable[[], str], start: object, end: object) -> UnstableError:
        if isinstance(end, RandomState):
            return UnstableError(
                f"line {self._line}: a step of a loop over tensors draws from {name().strip('`')}, and a file draws no "
                "random numbers of Python's: draw as many as there are steps before the loop, or take torch.rand"
            )
        return unstable_of([start], [end])(
            f"line {self._line}: a loop over tensors carries {name()}, which is {describe(start)} before it but "
            f"{describe(end)} behind a step; give the variable the shape and dtype that the body makes before the loop"
            f"{_BY_A_MASK if _is_of_another_size(start, end) else ''}"
        )

    def require_known_sizes(self, own_symbols: set[Any]) -> None:
        """Refuses a variable whose size is made from tensor data in the loop itself."""
        for kind in self.of.values():
            if _has_size_of(kind.shape, own_symbols):
                raise RewriteError(
                    f"line {self._line}: a loop over tensors carries a variable whose size depends on tensor data of "
                    "the step; carry a tensor of fixed shape with a mask"
                )


def have_sizes_of_a_step(elements: object, own_symbols: set[Any]) -> list[bool]:
    """For each leaf of what a step appends whether the step makes its size, which may then differ between steps."""
    leaves = pytree.tree_leaves(elements)
    return [isinstance(leaf, torch.Tensor) and _has_size_of(leaf.shape, own_symbols) for leaf in leaves]


def _has_size_of(shape: Sequence[Any], symbols: set[Any]) -> bool:
    """Whether a size of these is made from some symbols."""
    return any(free_unbacked_symbols(size) & symbols for size in shape if isinstance(size, torch.SymInt))


_BY_A_MASK = ", or carry a tensor of fixed size with a mask of the rows that are left, or a number of those filled"


def _is_of_another_size(start: object, end: object) -> bool:
    """Whether a step leaves other sizes of as many axes."""
    are_tensors = isinstance(start, torch.Tensor) and isinstance(end, torch.Tensor)
    return are_tensors and start.dim() == end.dim() and start.dtype == end.dtype  # type: ignore[attr-defined]


def _is_same_kind(first: Kind, second: Kind) -> bool:
    known, wanted = (
        (kind.dtype, kind.is_number, kind.kinds, len(kind.shape), kind.resized) for kind in (first, second)
    )
    return known == wanted


def _differing_axes(first: Sequence[Any], second: Sequence[Any]) -> frozenset[int]:
    """The axes along which two shapes of one rank are not known to be the same."""
    with disable_proxy_modes_tracing():  # the program has no sizes that tensor data made in a run for the analysis
        pairs = enumerate(zip(first, second, strict=True))
        return frozenset(axis for axis, (a, b) in pairs if not statically_known_true(a == b))


def undefined_like(start: object, end: object) -> Any:
    """A variable without a value as the structure of tensors that the body gives it, or that it had before."""
    has_value = start is not UNDEFINED and start is not NOTHING
    if has_value or isinstance(end, torch.Tensor | NUMBERS) or is_leaf(end) or end is NOTHING:
        return start
    leaves, spec = pytree.tree_flatten(end, is_leaf=is_leaf)
    can_be_carried = all(isinstance(leaf, torch.Tensor | NUMBERS) for leaf in leaves)
    return pytree.tree_unflatten([UNDEFINED] * len(leaves), spec) if can_be_carried else start


def none_like(start: object, end: object) -> Any:
    """What stands for None as the structure of tensors that a variable is before a step."""
    is_one = start is UNDEFINED or start is NOTHING or isinstance(start, torch.Tensor | NUMBERS)
    return end if end is not NOTHING or is_one else pytree.tree_map(lambda leaf: NOTHING, start)


def is_inner(start: object, end: object) -> bool:
    """Whether only the body uses a variable, for no graph can carry what it holds, such as a function."""
    return start is UNDEFINED and not isinstance(end, torch.Tensor | NUMBERS) and end is not MISSING


def copied_for_a_step(tensor: torch.Tensor) -> torch.Tensor:
    """A copy as every step has it: torch's operators compare strides, too, which a copy of one row keeps."""
    return tensor.clone(memory_format=torch.contiguous_format)
