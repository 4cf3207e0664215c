"""The inputs of a call at other sizes than those of the example."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch

from exportguard.inputs import CallInputs
from exportguard.signature import TracedInputs, raw_size

from .expressions import Evaluation, Sizes

_LARGEST = 2**24  # elements of one input


class InputsOfOtherSizes:
    """Makes inputs like those of a call that was exported."""

    def __init__(self, traced: TracedInputs, call: CallInputs) -> None:
        """`call` is what was exported, its classes registered with pytree, and `traced` what became of it."""
        self._call, self._leaves, self._traced = call, call.leaves(), traced
        self._random = torch.Generator().manual_seed(0)

    def __call__(self, sizes: Sizes) -> CallInputs | None:
        """The inputs where each symbol of the trace has that size; None if they would be too large, or are not known.

        A longer axis has the values of the example again and again, so that what counts rows of a table still does.
        Floating numbers are shaken, since a constant example would hide what is computed from it.
        """
        return self._of(sizes, self._shaken)

    def alike(self, point: Mapping[str, int]) -> CallInputs | None:
        """The same without shaking, by the names of the symbols."""
        symbols = {symbol for sizes in self._traced.sizes for size in sizes for symbol in size.free_symbols}
        return self._of({symbol: point[str(symbol)] for symbol in symbols}, lambda tensor: tensor)

    def _of(self, sizes: Sizes, finish: Callable[[torch.Tensor], torch.Tensor]) -> CallInputs | None:
        if len(self._leaves) != len(self._traced.leaves):
            return None
        pairs = zip(self._leaves, self._traced.leaves, strict=True)
        leaves = [_resized(leaf, traced, sizes, finish) for leaf, traced in pairs]
        if any(leaf is _TOO_LARGE for leaf in leaves):
            return None
        return self._call.with_leaves(leaves)

    def _shaken(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.rand(tensor.shape, generator=self._random).to(tensor.dtype).to(tensor.device)
        return tensor + noise / 8 * (1 + tensor.abs().clamp(max=8))


def with_masks(call: CallInputs) -> CallInputs:
    """The call whose masks, tables of ones for each row of a batch, leave out the first token of the first row."""
    return call.with_leaves([_masked(leaf) for leaf in call.leaves()])


def _masked(leaf: Any) -> Any:
    is_table = isinstance(leaf, torch.Tensor) and leaf.dim() == 2 and not leaf.is_floating_point()
    if not is_table or leaf.shape[-1] < 2 or leaf.is_complex() or not bool((leaf == 1).all()):
        return leaf
    masked = leaf.clone()
    masked[:1, 0] = 0
    return masked


_TOO_LARGE: Any = object()


def _resized(leaf: object, traced: object, sizes: Sizes, finish: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(leaf, torch.Tensor) and isinstance(traced, torch.Tensor):
        shape = [_value(raw_size(size), sizes) for size in traced.shape]
        return _TOO_LARGE if math.prod(shape) > _LARGEST else finish(wrapped(leaf, shape))
    if isinstance(traced, torch.SymInt):
        return _value(raw_size(traced), sizes)
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _value(expression: sympy.Expr, sizes: Sizes) -> int:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol and expression in sizes:
        return sizes[expression]
    return int(Evaluation(expression, sorted(expression.free_symbols, key=str))(sizes) or 0)


def wrapped(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """The tensor with its values again and again, or without the last of them, along each axis."""
    result = given = tensor.detach()
    for axis, size in enumerate(shape):
        if result.shape[axis] == 0 and size > 0:
            result = result.new_zeros([*result.shape[:axis], size, *result.shape[axis + 1 :]])
        elif result.shape[axis] != size:
            places = torch.arange(size, device=result.device) % result.shape[axis]
            result = result.index_select(axis, places)
    return given.clone() if result is given else result


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
