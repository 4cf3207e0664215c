"""Positions of texts with pictures, computed at once, are those of a walk from picture to picture."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from exportguard.patches.transformers.picture_grids import _find, block_order
from exportguard.patches.transformers.picture_positions import Walk, positions_with_pictures, ranked_positions
from exportguard.source.errors import RewriteError

TEXT, PICTURE, CLIP = range(3)
SIDE = 2


def frames_rows_columns(start: int, grid: torch.Tensor, _: int, side: int, interval: float = 1) -> torch.Tensor:
    frames, height, width = grid.tolist()
    cells = itertools.product(range(frames), range(height // side), range(width // side))
    return torch.tensor([[start + int(t * interval), start + h, start + w] for t, h, w in cells]).T


def with_ends_of_rows(start: int, grid: torch.Tensor, _: int, side: int) -> torch.Tensor:
    frames, height, width = (grid // torch.tensor([1, side, side])).tolist()
    cells = itertools.product(range(frames), range(height), range(width + 1))
    steps = [(start + t * max(height, width + 1), h, w) for t, h, w in cells]
    return torch.tensor([[begin, begin + h, begin + w] for begin, h, w in steps]).T


def walked(kinds: list[int], grids: dict[int, torch.Tensor], walk: Walk) -> torch.Tensor:
    """The positions of one text without padding, by the walk that the models make."""
    pictures = {kind: iter(enumerate(grid)) for kind, grid in grids.items()}
    found, current = [], 0
    for kind, group in itertools.groupby(kinds):
        if kind == TEXT:
            count = len(list(group))
            found.append(torch.arange(current, current + count).expand(3, -1))
            current += count
            continue
        number, grid = next(pictures[kind])
        interval = [] if walk.interval is None else [walk.interval[number] if kind == CLIP else 1]
        found.append(walk.places(current, grid, 1, SIDE, *interval))
        longer = current + int(grid[1:].max()) // SIDE
        current = int(found[-1].max()) + 1 if walk.is_behind_last else longer
    return torch.cat(found, dim=1)


WALKS: dict[str, tuple[Callable[..., torch.Tensor], bool, Any]] = {
    "longer side": (frames_rows_columns, False, None),
    "behind the last": (frames_rows_columns, True, None),
    "clips with times": (frames_rows_columns, False, torch.tensor([2.0, 1.5])),
    "clips with times, behind the last": (frames_rows_columns, True, torch.tensor([3.0, 0.5])),
    "ends of rows": (with_ends_of_rows, True, None),
    "ends of rows, longer side": (with_ends_of_rows, False, None),
}


@pytest.mark.parametrize("name", WALKS)
def test_they_are_those_of_the_walk(name: str) -> None:
    places, is_behind_last, interval = WALKS[name]
    walk = Walk(places, SIDE, is_behind_last, interval)
    grids = {
        PICTURE: torch.tensor([[1, 4, 6], [1, 2, 2], [1, 4, 12]]),
        CLIP: torch.tensor([[3, 4, 2], [5, 2, 4]]),
    }
    ends = int(places is with_ends_of_rows)
    counts = {kind: [int(t * h // 2 * (w // 2 + ends)) for t, h, w in grid.tolist()] for kind, grid in grids.items()}
    (a, b, c), (d, e) = counts[PICTURE], counts[CLIP]
    kinds = [0, *[1] * a, 0, 0, *[2] * d, 0, *[1] * b, 0, *[2] * e, *[1] * c, 0]
    padded = torch.tensor([[0, 0, *kinds]])
    mask = torch.tensor([[0, 0, *[1] * len(kinds)]])
    positions, deltas = positions_with_pictures(padded, mask, dict(grids), walk)
    expected = walked(kinds, grids, walk)
    torch.testing.assert_close(positions[:, 0, 2:], expected)
    assert deltas.item() == expected.max() + 1 - len(kinds)


def rows_first(start: int, grid: torch.Tensor, *_: Any) -> torch.Tensor:
    return frames_rows_columns(start, grid, 1, SIDE).flip(0)


def test_a_method_that_places_tokens_in_another_way_is_refused() -> None:
    kinds, grids = torch.ones(1, 6, dtype=torch.long), {PICTURE: torch.tensor([[1, 4, 6]])}
    with pytest.raises(RewriteError, match=r"are known, and rows_first gives others\. Compute the positions before"):
        positions_with_pictures(kinds, None, dict(grids), Walk(rows_first, SIDE, False))


def ranks(grid: torch.Tensor, spatial_merge_size: int) -> torch.Tensor:
    height, width = (grid // spatial_merge_size).tolist()
    return torch.tensor([[column, row] for row in range(height) for column in range(width + 1)]).T


def test_ranks_that_are_others_than_columns_and_rows_are_refused() -> None:
    kinds, grid = torch.ones(1, 8, dtype=torch.long), torch.tensor([[1, 4, 6]])
    ranked_positions(kinds, None, grid, 4, ranks, SIDE)
    with pytest.raises(RewriteError, match=r"lambda.* gives others"):
        ranked_positions(kinds, None, grid, 4, lambda *a, **b: ranks(*a, **b) + 1, SIDE)


def in_rows(grid_thw: torch.Tensor, merge_size: int) -> torch.Tensor:
    return torch.arange(int(grid_thw.prod(-1).sum()))


def with_counts(grid_thw: torch.Tensor, merge_size: int) -> tuple[torch.Tensor, int]:
    return block_order(grid_thw, merge_size), len(grid_thw)


def of_sides(grid_thw: torch.Tensor, merge_size: tuple[int, int]) -> torch.Tensor:
    return block_order(grid_thw, merge_size[0])


def in_blocks(grid_thw: torch.Tensor, merge_size: int) -> torch.Tensor:
    return block_order(grid_thw, merge_size)


@pytest.mark.parametrize(
    ("function", "is_known"), [(in_blocks, True), (in_rows, False), (with_counts, False), (of_sides, False)]
)
def test_a_function_that_does_something_else_by_its_name_is_left_alone(function: Any, is_known: bool) -> None:
    name, module = "get_vision_pixel_shuffle_index", types.ModuleType(__name__)
    own = types.FunctionType(function.__code__, globals(), name)
    own.__module__ = __name__
    setattr(module, name, own)
    assert list(_find(module)) == [(module, name)] * is_known
