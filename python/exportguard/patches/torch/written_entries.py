"""Entries written at an index that is a size: `x[..., n - 1] = 0`, `x[:, i // 2] += 1`.

torch.export reads such an entry with `select`, which takes a size as it is, and leaves writing to C++, which asks for a
number: the axis becomes a constant (torch 2.11 to 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler"
_TARGET = f"{_HANDLER}.__torch_function__"
_READING = f"{_HANDLER}._override"

WRITING = "__setitem__"


def _axes_of(index: object) -> int:
    """How many axes of a tensor one part of an index stands for."""
    if index is None or isinstance(index, bool):
        return 0
    return index.dim() if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) else 1


def _placed(index: Sequence[Any], rank: int) -> Iterator[tuple[Any, int]]:
    """Each part of an index with the first axis that it stands for."""
    axis, named = 0, sum(_axes_of(part) for part in index if part is not Ellipsis)
    for part in index:
        yield part, axis
        axis += rank - named if part is Ellipsis else _axes_of(part)


def _is_entry(part: object) -> bool:
    """Whether a part of an index is one entry whose place a trace does not know: a size, or one number of a tensor."""
    if isinstance(part, torch.Tensor):
        return not part.dim() and part.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return isinstance(part, torch.SymInt)


def _number(part: Any) -> Any:
    return part.item() if isinstance(part, torch.Tensor) else part


def write(written: torch.Tensor, index: Sequence[Any], value: Any) -> None:
    """`written[index] = value`, where single entries are chosen before the rest is written, as torch itself does."""
    for part, axis in reversed([*_placed(index, written.dim())]):
        if _is_entry(part):
            written = written.select(axis, _number(part))
    written[tuple(part for part in index if not _is_entry(part)) or ...] = value


def writing_at_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mode of torch.export that looks at each function which the model calls, and takes sizes to `select`."""

    @functools.wraps(original)
    def torch_function(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == WRITING and isinstance(args[0], torch.Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(map(_is_entry, index)):
                return write(args[0], index, args[2])
        return original(mode, func, types, args, kwargs)

    return torch_function


PATCHES = (
    Patch(
        name="entries written at sizes",
        kind="torch",
        target=_TARGET,
        awaits="torch._export.non_strict_utils",
        reason="C++ asks the index of an entry that is written for a number, and the axis becomes a constant",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/python_variable_indexing.cpp",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(
            Expected(
                path=_TARGET, parameters="self, func, types, args, kwargs", has=("self._override(func, args, kwargs)",)
            ),
            Expected(
                path=_READING,
                has=('func.__name__ == "__getitem__" and isinstance(args[0], torch.Tensor)',),
            ),
        ),
        replace=writing_at_sizes,
    ),
)
