"""Positions of the patches of packed pictures, computed for all pictures at once rather than in a loop over them.

`grid` has a row (frames, height, width) for each picture or clip; its patches follow each other picture by picture,
frame by frame, and within a frame in blocks of `merge` by `merge`.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from exportguard.declaration.constructs import SearchPatch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange

_HOME = "transformers.vision_utils"


class Patches(NamedTuple):
    """For each patch of all pictures: which picture, frame, row and column it is of."""

    picture: torch.Tensor
    frame: torch.Tensor
    row: torch.Tensor
    column: torch.Tensor


def patches_of(grid: torch.Tensor, merge: Any = 1) -> Patches:
    """Where each patch lies; `merge` is a number, or one for each picture."""
    counts = grid.prod(-1)
    picture = torch.repeat_interleave(counts)
    place = torch.arange(picture.shape[0], device=grid.device) - (counts.cumsum(0) - counts)[picture]
    height, width = grid[:, 1][picture], grid[:, 2][picture]
    size = merge[picture] if isinstance(merge, torch.Tensor) else merge
    within, block = place % (size * size), place % (height * width) // (size * size)
    across = width // size
    row, column = block // across * size + within // size, block % across * size + within % size
    return Patches(picture, place // (height * width), row, column)


def position_ids(grid_thw: torch.Tensor, spatial_merge_size: object, include_temporal: bool = False) -> torch.Tensor:
    """Row and column of each patch, behind its frame if that is asked for."""
    _, frame, row, column = patches_of(grid_thw, spatial_merge_size)
    return torch.stack([frame, row, column] if include_temporal else [row, column], dim=-1)


def window_index(
    grid_thw: torch.Tensor, spatial_merge_size: int, window_size: int, patch_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The order of the merged patches window by window, and where each window begins and ends among the patches."""
    grid, merge = grid_thw, spatial_merge_size
    side = window_size // merge // patch_size
    merged = torch.stack([grid[:, 0], grid[:, 1] // merge, grid[:, 2] // merge], dim=-1)
    windows = torch.stack([grid[:, 0], _up(merged[:, 1], side), _up(merged[:, 2], side)], dim=-1)
    counts = windows.prod(-1)
    picture, frame, row, column = patches_of(merged)
    before = (counts.cumsum(0) - counts)[picture]
    down, across = windows[:, 1][picture], windows[:, 2][picture]
    window = before + (frame * down + row // side) * across + column // side
    order = torch.argsort((window * side + row % side) * side + column % side)
    picture, _, row, column = patches_of(windows)
    heights = (merged[:, 1][picture] - row * side).clamp(max=side)
    widths = (merged[:, 2][picture] - column * side).clamp(max=side)
    return order, pad((heights * widths * merge**2).cumsum(0), (1, 0)).to(torch.int32)


def _up(size: torch.Tensor, side: int) -> torch.Tensor:
    return (size + side - 1) // side


def nearest_position_ids(target_sizes: torch.Tensor, num_patches_per_side: int) -> torch.Tensor:
    """The place of each patch in a square table of positions; `target_sizes` has a row (height, width) for each."""
    grid, side = pad(target_sizes, (1, 0), value=1), num_patches_per_side
    picture, _, row, column = patches_of(grid)
    edges = torch.arange(1 / side, 1.0, 1 / side, device=grid.device)
    down = torch.bucketize(row / grid[:, 1][picture], edges, right=True)
    return down * side + torch.bucketize(column / grid[:, 2][picture], edges, right=True)


def frame_index(grid_thw: torch.Tensor) -> torch.Tensor:
    """The number of each patch's frame, from 1 on; 0 in a clip of one frame."""
    picture, frame, _, _ = patches_of(grid_thw)
    return torch.where(grid_thw[:, 0][picture] > 1, frame + 1, 0)


def block_order(grid_thw: torch.Tensor, merge_size: int) -> torch.Tensor:
    """The place of each patch where patches lie row by row, block after block."""
    picture, frame, row, column = patches_of(grid_thw, merge_size)
    _, height, width = grid_thw[picture].unbind(-1)
    return _starts(grid_thw)[picture] + (frame * height + row) * width + column


def in_blocks(features: torch.Tensor, grid_thw: torch.Tensor, merge: int) -> torch.Tensor:
    """Features of patches that lie row by row as (blocks, patches of a block, width)."""
    return features[block_order(grid_thw, merge)].view(-1, merge * merge, features.shape[-1])


def temporal_merge_index(grid_thw: torch.Tensor, kernel_height: int, kernel_width: int) -> torch.Tensor:
    """For each block of a clip the places of its patches in all frames; the clips have as many frames as each other."""
    sides = torch.tensor([1, kernel_height, kernel_width], device=grid_thw.device)
    clip, _, row, column = patches_of(torch.cat([torch.ones_like(grid_thw[:, :1]), grid_thw[:, 1:]], dim=-1) // sides)
    frames: Any = grid_thw[:, 0].max()
    down = torch.arange(kernel_height, device=grid_thw.device).repeat_interleave(kernel_width)
    across = torch.arange(kernel_width, device=grid_thw.device).repeat(kernel_height)
    _, height, width = grid_thw[clip].unbind(-1)
    frame = torch.arange(frames, device=grid_thw.device)[None] * (height * width)[:, None]
    rows, columns = row[:, None] * kernel_height + down, column[:, None] * kernel_width + across
    within = rows * width[:, None] + columns
    return _starts(grid_thw)[clip][:, None, None] + frame[:, :, None] + within[:, None]


def _starts(grid: torch.Tensor) -> torch.Tensor:
    counts = grid.prod(-1)
    return counts.cumsum(0) - counts


#: Where each picture begins is what is before its end, without its own patches: as many numbers as pictures.
OwnStarts = exchange("OwnStarts", ("F.pad($counts.cumsum(0)[:-1], (1, 0))", "$counts.cumsum(0) - $counts"))


class _AtOnce(NamedTuple):
    """What takes the place of a function, the arguments of a call that has it computed before, and examples.

    An example is the first argument; `options` are those behind it.
    """

    compute: Callable[..., Any]
    given: tuple[str, ...]
    options: tuple[int, ...] = ()
    examples: tuple[list[list[int]], ...] = ([[1, 4, 8], [3, 8, 4]], [[2, 4, 4]])


_AT_ONCE = {
    "get_vision_position_ids": _AtOnce(position_ids, ("position_ids",), (2,)),
    "get_vision_window_index": _AtOnce(window_index, ("window_index", "cu_window_seqlens"), (2, 8, 2)),
    "get_vision_nearest_position_ids": _AtOnce(
        nearest_position_ids, ("position_ids",), (7,), ([[4, 8], [5, 3]], [[1, 7]])
    ),
    "get_vision_frame_index": _AtOnce(frame_index, ("frame_index",)),
    "get_vision_pixel_shuffle_index": _AtOnce(block_order, ("pixel_shuffle_index",), (2,)),
    "get_vision_temporal_merge_index": _AtOnce(
        temporal_merge_index, ("temporal_merge_index",), (2, 2), ([[3, 4, 8], [3, 8, 4]], [[1, 4, 4]])
    ),
}


_REWRITTEN = {"get_vision_interpolation_indices_and_weights": rewrite(OwnStarts)}


@functools.cache
def _replacement(original: Callable[..., Any]) -> Any:
    if original.__name__ in _REWRITTEN:
        return _REWRITTEN[original.__name__](original)
    at_once, given, _, _ = _AT_ONCE[original.__name__]

    @functools.wraps(original)
    def compute(*args: Any, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        is_given = kwargs is not None and any(kwargs.get(name) is not None for name in given)
        if is_given or not torch.compiler.is_exporting():
            return original(*args, kwargs=kwargs, **options)
        return at_once(*args, **options)

    return compute


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """What is computed within is no part of what is traced."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@functools.cache
def _is_known(function: Callable[..., Any]) -> bool:
    """Whether what takes its place gives the same on examples: a later version may do something else by its name."""
    if function.__name__ in _REWRITTEN:
        return True
    at_once, _, options, examples = _AT_ONCE[function.__name__]
    with plainly():
        calls = [(torch.tensor(example), *options) for example in examples]
        try:
            pairs = [(tree_leaves(function(*call)), tree_leaves(at_once(*call))) for call in calls]
        except (TypeError, ValueError, IndexError, RuntimeError):  # it takes other arguments, or other values
            return False
    return all(len(one) == len(other) and all(map(_is_equal, one, other)) for one, other in pairs)


def _is_equal(one: object, other: object) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return one.dtype == other.dtype and torch.equal(one, other)


def _find(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
    """The functions by their names, imported from transformers' own module or defined by the model itself."""
    for name in (*_AT_ONCE, *_REWRITTEN):
        function = vars(module).get(name)
        if getattr(function, "__module__", None) in (_HOME, module.__name__) and _is_known(function):
            yield module, name


PATCHES = (
    SearchPatch(
        name="positions in packed pictures",
        kind="transformers",
        find=_find,
        mentions=(*_AT_ONCE, *_REWRITTEN),
        replace=_replacement,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
