"""The inputs of a call at other sizes than those of the example."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from exportguard.inputs import CallInputs
from exportguard.rewrites.state import is_fake
from exportguard.signature import TracedInputs, raw_size

from .counts import Counts
from .evaluation import Evaluation
from .expressions import Sizes

_LARGEST = 2**24  # elements of one input
_VAST = 2**30  # of one that is never made: what grows with its square has a size that torch can still count
_JOINED = 2**18  # elements of inputs that are made at once


class InputsOfOtherSizes:
    """Makes inputs like those of a call that was exported."""

    def __init__(self, traced: TracedInputs, call: CallInputs) -> None:
        """`call` is what was exported, its classes registered with pytree, and `traced` what became of it."""
        self._call, self._leaves, self._traced = call, call.leaves(), traced
        self._sizes = [_sizes_of(leaf) for leaf in traced.leaves]
        self._counts = Counts.of(call.named, self._leaves)
        self._evaluations: dict[sympy.Expr, Evaluation] = {}
        self._random = torch.Generator().manual_seed(0)

    def __call__(self, sizes: Sizes) -> CallInputs | None:
        """The inputs where each symbol of the trace has that size; None if they would be too large, or are not known.

        Nor are those of which one has less than no size, as what is 4 less than another.

        A longer axis has the values of the example again and again, so that what counts rows of a table still does.
        Floating numbers are shaken, since a constant example would hide what is computed from it.
        """
        return self._of(sizes, self._shaken)

    def without_data(self, sizes: Sizes) -> CallInputs | None:
        """The inputs as tensors of the mode of fake tensors that is on, of sizes too large to be made; None if they
        are so large that torch cannot count what a model makes of them, or are not known."""
        if len(self._leaves) != len(self._sizes):
            return None
        leaves: list[Any] = []
        for leaf, traced in zip(self._leaves, self._sizes, strict=True):
            found = None if traced is None else [self._value(size, sizes) for size in traced]
            if not isinstance(leaf, torch.Tensor):
                leaves.append(leaf if found is None else found[0])
                continue
            shape = list(leaf.shape) if found is None else found
            if math.prod(shape) > _VAST or min(shape, default=0) < 0:
                return None
            leaves.append(torch.empty(shape, dtype=leaf.dtype, device=leaf.device))
        return self._call.with_leaves(leaves)

    def alike(self, point: Mapping[str, int]) -> CallInputs | None:
        """The same without shaking, by the names of the symbols; None as well where one of them is not told."""
        symbols = {symbol for sizes in self._traced.sizes for size in sizes for symbol in size.free_symbols}
        if not {*map(str, symbols)} <= point.keys():
            return None
        return self._of({symbol: point[str(symbol)] for symbol in symbols}, torch.clone)

    def _of(self, sizes: Sizes, finish: Callable[[torch.Tensor], torch.Tensor]) -> CallInputs | None:
        if len(self._leaves) != len(self._sizes):
            return None
        leaves: list[Any] = []
        alike: dict[Any, list[int]] = {}
        for leaf, traced in zip(self._leaves, self._sizes, strict=True):
            found = None if traced is None else [self._value(size, sizes) for size in traced]
            if isinstance(leaf, torch.Tensor) and found is not None:
                if math.prod(found) > _LARGEST or min(found, default=0) < 0:
                    return None
                alike.setdefault((type(leaf), leaf.shape, leaf.dtype, leaf.device, *found), []).append(len(leaves))
                leaves.append(leaf.detach())
            elif found is not None:
                leaves.append(found[0])
            else:
                leaves.append(leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
        places = Places()
        for (kind, shape, _, _, *found), numbers in alike.items():
            given = [leaves[number] for number in numbers]
            is_plain = kind is torch.Tensor and not _may_be_in_order(given[0])
            is_joined = is_plain and len(given) * max(math.prod(shape), math.prod(found)) <= _JOINED
            made = places.all_wrapped(given, found, finish, is_joined=is_joined)
            for number, tensor in zip(numbers, made, strict=True):
                leaves[number] = tensor
        self._counts.put(leaves)
        return self._call.with_leaves(leaves)

    def _value(self, size: int | sympy.Expr, sizes: Sizes) -> int:
        if isinstance(size, int):
            return size
        if size in sizes:
            return sizes[size]
        evaluation = self._evaluations.get(size)
        if evaluation is None:
            evaluation = self._evaluations[size] = Evaluation(size, sorted(size.free_symbols, key=str))
        return int(evaluation(sizes) or 0)

    def _shaken(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of its own, with an eighth of noise."""
        if not tensor.is_floating_point():
            return tensor.clone()
        noise = torch.rand(tensor.shape, generator=self._random).to(tensor.dtype).to(tensor.device)
        return torch.addcmul(tensor, noise, tensor.abs().clamp_(max=8).add_(1), value=1 / 8)


def _sizes_of(traced: object) -> list[int | sympy.Expr] | None:
    """The traced sizes of a tensor, or the one number that a traced number is; None for what has none."""
    if isinstance(traced, torch.Tensor):
        return [size if type(size) is int else _number_or_expression(size) for size in traced.shape]
    return [_number_or_expression(traced)] if isinstance(traced, torch.SymInt) else None


def _number_or_expression(size: object) -> int | sympy.Expr:
    expression = raw_size(size)
    return int(expression) if expression.is_Integer else expression


def with_other_data(call: CallInputs) -> Iterator[CallInputs]:
    """The same call with floating numbers of other signs and magnitudes, that tests of them go the other way; none if
    it has no such numbers."""
    return _with_changed(call, is_of_reals, _CHANGES)


def with_data_at_ends(call: CallInputs, numbers: Sequence[int] = ()) -> Iterator[CallInputs]:
    """The same call with numbers that few others are like: huge ones, tiny ones, zeros, infinite ones and NaN, and
    those that the code of the model names.

    What bounds, rounds or replaces numbers does nothing to most of them, and what moves rows nothing to equal ones.
    Whole numbers are moved by a few and turned around: they may be positions, of which a model refuses those beyond its
    tables. Truth values are turned over, and are all of one kind.
    """
    yield from _with_changed(call, _is_of_inexact, _ENDS)
    yield from _with_changed(call, is_of_integers, _OTHER_INTEGERS)
    yield from _with_changed(call, _is_of_truths, _OTHER_TRUTHS)
    yield from _drawn(call, numbers)


def _drawn(call: CallInputs, numbers: Sequence[int]) -> Iterator[CallInputs]:
    """The same call with numbers that are drawn for each place: two inputs that are alike differ, and what is asked of
    several of them at once is met somewhere. Each but the first few has one number at every third place."""
    leaves = call.leaves()
    draw = torch.Generator().manual_seed(0)
    held = [*numbers, *(-number for number in numbers), *_RARE]
    for number in (*itertools.repeat(None, _DRAWS), *held):
        changed = [_drawn_leaf(leaf, number, draw) for leaf in leaves]
        if any(one is not leaf for one, leaf in zip(changed, leaves, strict=True)):
            yield call.with_leaves(changed)


def _drawn_leaf(leaf: Any, number: int | float | None, draw: torch.Generator) -> Any:
    if _is_of_truths(leaf):
        return _places(leaf, 2, draw) == 1
    if is_of_integers(leaf) and leaf.numel():
        limits = torch.iinfo(leaf.dtype)
        own = _places(leaf, min(max(int(leaf.max()), _FEW) + 1, limits.max), draw).to(leaf.dtype)
        is_held = isinstance(number, int) and limits.min <= number <= limits.max
    elif is_of_reals(leaf) and leaf.numel():
        own = leaf * ((_places(leaf, 4001, draw) - 2000) / 1000).to(leaf.dtype)
        is_held = number is not None
    else:
        return leaf
    if not is_held:
        return own
    first = int(torch.randint(min(leaf.numel(), 3), (), generator=draw))
    return torch.where(_counted(leaf, 3) == first, torch.tensor(number, dtype=leaf.dtype, device=leaf.device), own)


def _places(leaf: torch.Tensor, count: int, draw: torch.Generator) -> torch.Tensor:
    """Whole numbers below a count in the shape of a tensor."""
    return torch.randint(count, leaf.shape, generator=draw).to(leaf.device)


def _with_changed(
    call: CallInputs, is_meant: Callable[[object], bool], changes: Sequence[Callable[[torch.Tensor], torch.Tensor]]
) -> Iterator[CallInputs]:
    leaves = call.leaves()
    for change in changes if any(is_meant(leaf) and leaf.numel() for leaf in leaves) else ():
        yield call.with_leaves([change(leaf) if is_meant(leaf) else leaf for leaf in leaves])


_CHANGES: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    torch.neg,
    torch.abs,
    lambda values: -values.abs(),
    lambda values: 100 * values.abs() + 1,
    lambda values: -100 * values.abs() - 1,
    lambda values: values / 100,
)


_DRAWS = 4  # without a certain number
_FEW = 4  # numbers, of which an integer is drawn at least
#: -100 is the label that losses ignore. No large ones: a model may make as many rows of an integer.
_RARE = (math.nan, math.inf, -1, -100)


def _with_one(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Puts a number in the place of the first one."""

    def changed(values: torch.Tensor) -> torch.Tensor:
        is_first = torch.arange(values.numel(), device=values.device) == 0
        return torch.where(is_first, number, values.flatten()).to(values.dtype).view(values.shape)

    return changed


def _counted(values: torch.Tensor, most: int) -> torch.Tensor:
    """0, 1, … `most` - 1, 0, 1, … in the shape of a tensor."""
    return (torch.arange(values.numel(), device=values.device) % most).view(values.shape)


_ENDS: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    lambda values: values * 1.7 + 0.3,
    lambda values: values + 1,  # of positions that floating numbers hold the next ones
    lambda values: values + (0.37 * _counted(values, 101)).to(values.dtype),
    lambda values: values * 3000,
    lambda values: values * -3000,
    lambda values: values * 1e-6,
    torch.zeros_like,
    _with_one(math.inf),
    _with_one(-math.inf),
    _with_one(math.nan),
)
_OTHER_INTEGERS: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    lambda values: values + 1,
    lambda values: values + _counted(values, 7).to(values.dtype),
    lambda values: (values - _counted(values, 5).to(values.dtype)).abs(),
    lambda values: values.flatten().flip(0).view(values.shape),
    torch.neg,
    torch.zeros_like,
    lambda values: values * 100,
)


_OTHER_TRUTHS: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    torch.logical_not,
    torch.zeros_like,
    torch.ones_like,
    lambda values: _counted(values, 3) == 0,
    lambda values: _counted(values, 2) == 0,
)


#: Those that torch computes with by elements: no quantized ones, no float8, no unsigned ones of several bytes.
_INEXACT = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _is_of_inexact(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _INEXACT


def is_of_integers(leaf: object) -> bool:
    """Whether it is a tensor of whole numbers."""
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _INTEGERS


def _is_of_truths(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool


def is_of_reals(leaf: object) -> bool:
    """Whether it is a tensor whose numbers other data may have in their place."""
    return _is_of_inexact(leaf) and not leaf.is_complex()  # type: ignore[attr-defined]


def with_masks(call: CallInputs, *, least: int = 2) -> CallInputs:
    """The call whose masks, tables of ones for each row of a batch, leave out the first token of the first row.

    Of less than `least` tokens none is left out: a row without any has no values to compare.
    """
    return call.with_leaves([_masked(leaf, least) for leaf in call.leaves()])


def _masked(leaf: Any, least: int) -> Any:
    is_table = isinstance(leaf, torch.Tensor) and leaf.dim() == 2 and not leaf.is_floating_point()
    if not is_table or leaf.shape[-1] < least or leaf.is_complex() or not bool((leaf == 1).all()):
        return leaf
    masked = leaf.clone()
    masked[:1, 0] = 0
    return masked


class Places:
    """Makes tensors of other sizes; which rows those have is computed once for all tensors."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, torch.device], torch.Tensor] = {}

    def wrapped(self, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """The tensor, or another with its values again and again, or without the last of them, along each axis.

        Integers of one axis that never fall, where bags or sequences begin in a tensor of all of them, do so in the
        other one as well. It may lie in the memory of the one that was given.
        """
        may_be = _may_be_in_order(tensor) and shape[0] > len(tensor)
        is_in_order = may_be and bool((tensor[1:] >= tensor[:-1]).all())
        for axis, size in enumerate(shape):
            known = tensor.shape[axis]
            if known == 0 and size > 0:
                tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
            elif size < known:
                tensor = tensor.narrow(axis, 0, size)
            elif size > known:
                tensor = tensor.index_select(axis, self._of(size, known, tensor.device))
        return tensor.sort().values if is_in_order else tensor

    def all_wrapped(
        self,
        tensors: Sequence[torch.Tensor],
        shape: Sequence[int],
        finish: Callable[[torch.Tensor], torch.Tensor],
        *,
        is_joined: bool,
    ) -> list[torch.Tensor]:
        """The same for several of one look, with what `finish` makes of each; joined, as the states of many layers are,
        they take as many operators as one."""
        if not is_joined or len(tensors) == 1:
            return [finish(self.wrapped(tensor, shape)) for tensor in tensors]
        whole = finish(self.wrapped(torch.stack([*tensors]), [len(tensors), *shape]))
        return [part.clone() for part in whole.unbind()]

    def _of(self, size: int, known: int, device: torch.device) -> torch.Tensor:
        key = size, known, device
        if key not in self._known:
            self._known[key] = torch.arange(size, device=device) % known
        return self._known[key]


def _may_be_in_order(tensor: torch.Tensor) -> bool:
    return is_of_integers(tensor) and tensor.dim() == 1 and not tensor.is_meta and not is_fake(tensor)


def wrapped(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of its own with the values of another again and again, or without the last of them, along each axis."""
    return Places().wrapped(tensor.detach(), shape).clone()


def other_sizes(sizes: Sizes, allowed: Any) -> Iterator[Sizes]:
    """Sizes near those of the example, each of them another one, for which `allowed` is true."""
    symbols = [*sizes]
    for by in (1, 2, 3, 4, 6, 8, 12, 16):
        yield from filter(allowed, [{symbol: size + by for symbol, size in sizes.items()}])
    for steps in itertools.islice(itertools.product((1, 2, 4, 0), repeat=len(symbols)), 256):
        if all(step == 0 for step in steps):
            continue
        changed: Mapping[sympy.Symbol, int] = {
            symbol: sizes[symbol] + step for symbol, step in zip(symbols, steps, strict=True)
        }
        yield from filter(allowed, [changed])
