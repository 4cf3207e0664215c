"""A square table of learned positions, resized to the patches of each picture, for all pictures at once.

Bilinear resizing with antialiasing is a weighted sum over the table's rows and columns: the weights follow from how
many patches a picture has, which is data that `interpolate` cannot take.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from exportguard.declaration.constructs import SearchPatch
from exportguard.declaration.modules import classes_of
from exportguard.patches.transformers.picture_grids import patches_of
from exportguard.source.errors import RewriteError
from exportguard.source.reading import name_of
from exportguard.source.wrapping import plain

_METHOD = "resize_positional_embeddings"


def weights_of(place: torch.Tensor, count: torch.Tensor, size: int) -> torch.Tensor:
    """How much each of `size` entries adds to the one at `place` after resizing to `count`; one row for each place."""
    scale = size / count
    width = scale.clamp(min=1.0)
    center = scale * (place + 0.5)
    entries = torch.arange(size, device=place.device) + 0.5
    weights = (1 - ((entries - center[..., None]) / width[..., None]).abs()).clamp(min=0)
    return weights / weights.sum(-1, keepdim=True)


def resized(table: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The entries of the resized table, (..., width), whose weights over rows and columns are given."""
    by_row = rows.to(table.dtype) @ table.flatten(1)
    by_row = by_row.view(*rows.shape[:-1], *table.shape[1:])
    return (columns.to(table.dtype)[..., None, :] @ by_row).squeeze(-2)


def _of_packed(table: torch.Tensor, grid_thw: torch.Tensor, spatial_merge_size: int) -> torch.Tensor:
    picture, _, row, column = patches_of(grid_thw, spatial_merge_size)
    heights, widths = grid_thw[:, 1][picture], grid_thw[:, 2][picture]
    return resized(table, weights_of(row, heights, table.shape[0]), weights_of(column, widths, table.shape[1]))


def _of_padded(table: torch.Tensor, spatial_shapes: torch.Tensor, max_length: Any) -> torch.Tensor:
    """Behind the patches of a picture stands its first entry, up to `max_length`."""
    height, width = spatial_shapes[:, :1], spatial_shapes[:, 1:]
    place = torch.arange(max_length, device=table.device)[None]
    place = torch.where(place < height * width, place, 0)
    rows = weights_of(place // width, height.expand_as(place), table.shape[0])
    return resized(table, rows, weights_of(place % width, width.expand_as(place), table.shape[1]))


#: By the arguments behind the table.
_AT_ONCE: dict[tuple[str, ...], Callable[..., torch.Tensor]] = {
    ("grid_thw", "spatial_merge_size"): _of_packed,
    ("spatial_shapes", "max_length"): _of_padded,
}


def _while_exporting(method: staticmethod[..., Any]) -> staticmethod[..., Any]:
    original = method.__func__
    arguments = tuple(inspect.signature(original).parameters)[1:]
    at_once = _AT_ONCE.get(arguments)
    if at_once is None:
        raise RewriteError(f"{name_of(plain(original))} takes {', '.join(arguments)} behind the table")

    @functools.wraps(original)
    def resize(positional_embeddings: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_exporting():
            return original(positional_embeddings, *args, **kwargs)
        return at_once(positional_embeddings.float(), *args, **kwargs).to(positional_embeddings.dtype)

    return staticmethod(resize)


def _find(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
    owners = (owner for owner in classes_of(module) if isinstance(vars(owner).get(_METHOD), staticmethod))
    return ((owner, _METHOD) for owner in owners)


PATCHES = (
    SearchPatch(
        name="tables of positions for pictures of any size",
        kind="transformers",
        find=_find,
        mentions=(f"def {_METHOD}(",),
        replace=_while_exporting,
        reason="the table is resized in a loop over the pictures, to sizes that are data",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
