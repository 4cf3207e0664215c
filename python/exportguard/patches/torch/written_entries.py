"""Entries at an index that is a size: `x[..., n - 1] = 0`, `x[:, i // 2] += 1`, `x[rows, n - 1]`.

torch.export reads such an entry with `select`, which takes a size as it is, and leaves writing to C++, as well as
reading beside tensors, lists and masks. C++ asks for a number: the axis becomes a constant. Of a mask beside tensors it
asks how many entries it chooses (torch 2.11 to 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch
from exportguard.rewrites.index_parts import (
    as_tensor,
    axes_of,
    beside_masks,
    holds_numbers,
    holds_open_lists,
    is_choosing,
    is_dynamic_slice,
    is_entry,
    is_mask,
    parts_of,
    spelled_out,
    viewed,
)
from exportguard.size_names import are_named_apart

_HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler"
_TARGET = f"{_HANDLER}.__torch_function__"
_OVERRIDING = f"{_HANDLER}._override"

READING, WRITING = "__getitem__", "__setitem__"


def _is_entry(part: object) -> bool:
    """Whether a part of an index is one entry whose place a trace does not know: a size, or one number of a tensor."""
    return isinstance(part, torch.SymInt) or is_entry(part)


def _chooses(part: object) -> bool:
    """Whether C++ alone reads an index with this part: a tensor, a list or a truth value."""
    return isinstance(part, bool | list | tuple | range) or is_choosing(part)


def _is_of_cpp(index: Sequence[Any]) -> bool:
    """Whether C++ would ask what is read for a number: a place, or how many entries a mask chooses beside others."""
    choosing = [part for part in index if _chooses(part)]
    is_of_the_run = any(_is_entry(part) or is_dynamic_slice(part) for part in index)
    return bool(choosing) and (is_of_the_run or (len(choosing) > 1 and any(map(is_mask, choosing))))


def _without_lists(index: Any) -> tuple[Any, ...]:
    """The parts of an index, with a tensor for a list of numbers that a trace does not know."""
    parts = parts_of(index)
    return tuple(as_tensor(part) if holds_numbers(part) else part for part in parts)


def _number(part: Any) -> Any:
    """A part of an index with numbers in the place of tensors that are one."""
    if isinstance(part, slice):
        return slice(_number(part.start), _number(part.stop), _number(part.step))
    return part.item() if is_entry(part) else part


def read(container: torch.Tensor, index: Sequence[Any]) -> torch.Tensor:
    """`container[index]`, where single entries are chosen before the rest, as torch itself does."""
    view, choosing = viewed(*spelled_out(container, [*map(_number, index)]))
    return view[beside_masks(choosing)]


def _placed(index: Sequence[Any], rank: int) -> Iterator[tuple[Any, int]]:
    """Each part of an index with the first axis that it stands for."""
    axis, named = 0, sum(axes_of(part) for part in index if part is not Ellipsis)
    for part in index:
        yield part, axis
        axis += rank - named if part is Ellipsis else axes_of(part)


def write(written: torch.Tensor, index: Sequence[Any], value: Any) -> None:
    """`written[index] = value`, where single entries are chosen before the rest is written, as torch itself does."""
    for part, axis in reversed([*_placed(index, written.dim())]):
        if _is_entry(part):
            written = written.select(axis, _number(part))
    written[tuple(part for part in index if not _is_entry(part)) or ...] = value


def _broadcast(written: torch.Tensor, index: Sequence[Any], value: object) -> torch.Tensor | None:
    """What is written to a view and may have one entry where that has several, of which C++ asks whether they are
    alike; None if there is no such value. Axes of one entry before those of the view are taken away, as C++ does."""
    if not isinstance(value, torch.Tensor) or any(map(_chooses, index)):
        return None
    if not any(are_named_apart(one, other) for one in written.shape for other in value.shape):
        return None
    rank = written.dim() + sum(part is None for part in index) - sum(isinstance(part, int) for part in index)
    while value.dim() > rank and isinstance(value.shape[0], int) and value.shape[0] == 1:
        value = value.select(0, 0)
    return value if value.dim() <= rank else None


def writing_at_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mode of torch.export that looks at each function which the model calls, and takes sizes to `select`."""

    @functools.wraps(original)
    def torch_function(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in (READING, WRITING) and isinstance(args[0], torch.Tensor):
            index = _without_lists(args[1])
            if func.__name__ == WRITING and any(map(_is_entry, index)):
                return write(args[0], index, args[2])
            value = _broadcast(args[0], index, args[2]) if func.__name__ == WRITING else None
            if value is not None:
                return args[0][index].copy_(value)
            if func.__name__ == READING and _is_of_cpp(index):
                return read(args[0], index)
            if holds_open_lists(args[1]) or any(map(holds_numbers, parts_of(args[1]))):
                args = (args[0], index, *args[2:])
        return original(mode, func, types, args, kwargs)

    return torch_function


PATCHES = (
    Patch(
        name="entries written at sizes",
        kind="torch",
        target=_TARGET,
        awaits="torch._export.non_strict_utils",
        reason="C++ asks the index of an entry that is written, or read beside tensors, for a number, and the axis "
        "becomes a constant",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/python_variable_indexing.cpp",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(
            Expected(
                path=_TARGET, parameters="self, func, types, args, kwargs", has=("self._override(func, args, kwargs)",)
            ),
            Expected(
                path=_OVERRIDING,
                has=('func.__name__ == "__getitem__" and isinstance(args[0], torch.Tensor)',),
            ),
        ),
        replace=writing_at_sizes,
    ),
)
