"""Pictures cut into tiles, as many as suit the shape of each: counted, unpadded and packed for all of them at once.

A picture is scaled to the best of some resolutions, padded to it and cut into tiles of one size; a tile of the whole
picture stands before them. The features of its tiles are put together again, without the padding, row by row.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Exchange, Template, pairs_of

_ROUNDING = 5e-8  # models round the sizes of pictures to seven decimals before they cut them off


class Tiles(NamedTuple):
    """The features of all tiles, (tiles, tokens, width), and how many tiles each picture has."""

    features: torch.Tensor
    counts: torch.Tensor


def best_resolutions(sizes: torch.Tensor, resolutions: Sequence[Sequence[int]]) -> torch.Tensor:
    """For each picture the resolution that keeps most of its pixels, and of those the smallest; the first of equals."""
    known = torch.tensor(resolutions, device=sizes.device)
    height, width = (side[:, None] for side in sizes.double().unbind(-1))
    scale = torch.minimum(known[:, 1] / width, known[:, 0] / height)
    scaled = (width * scale).trunc().long() * (height * scale).trunc().long()
    kept = torch.minimum(scaled, sizes.prod(-1, keepdim=True))
    areas = [rows * columns for rows, columns in resolutions]
    return known[(kept * (max(areas) + 1) - torch.tensor(areas, device=sizes.device)).argmax(-1)]


def tile_counts(sizes: Any, resolutions: Any, side: int, cut: torch.Tensor | None = None) -> torch.Tensor:
    """The number of tiles of each picture, with that of the whole; one where `cut` says that it stays in one piece."""
    best = best_resolutions(torch.as_tensor(sizes), resolutions)
    counts = ((best + side - 1) // side).prod(-1) + 1
    return counts if cut is None else torch.where(cut, counts, 1)


def first_tiles(pixels: torch.Tensor, counts: Any) -> list[torch.Tensor]:
    """Of each picture as many tiles as it has: those behind them only fill the batch."""
    if not isinstance(counts, torch.Tensor):
        return [tiles[:count] for tiles, count in zip(pixels, counts, strict=False)]
    picture = torch.repeat_interleave(counts)
    place = torch.arange(picture.shape[0], device=pixels.device) - (counts.cumsum(0) - counts)[picture]
    return [pixels[picture, place]]


def split_tiles(features: torch.Tensor, counts: Any, dim: int = 0) -> Any:
    """`torch.split`; features and counts side by side where the counts are data."""
    return Tiles(features, counts) if isinstance(counts, torch.Tensor) else torch.split(features, counts, dim)


def packed_tiles(
    tiles: Tiles, sizes: object, cut: tuple[Any, int], newline: torch.Tensor | None, limit: str | None
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The features of all pictures behind each other, and how many each has.

    `cut` tells the resolutions and the side of a tile in pixels; `newline` ends each row, and `limit` is the name that
    says to how many tiles larger pictures are scaled down.
    """
    sizes = torch.as_tensor(sizes)
    side = math.isqrt(tiles.features.shape[1])
    grid = best_resolutions(sizes, cut[0]) // cut[1]
    padded = grid * side
    shown = _shown(sizes, padded)
    scaled = shown if limit is None else _scaled_down(shown, int(limit.removeprefix("anyres_max_")) * side**2)
    ends = 0 if newline is None else 1
    counts = torch.where(tiles.counts > 1, scaled[:, 0] * (scaled[:, 1] + ends), ends) + side**2
    picture = torch.repeat_interleave(counts)
    place = torch.arange(picture.shape[0], device=sizes.device) - (counts.cumsum(0) - counts)[picture] - side**2
    across = (scaled[:, 1][picture] + ends).clamp(min=1)
    row, column = place // across, place % across
    is_end = (place >= 0) & ((column == scaled[:, 1][picture]) | (tiles.counts[picture] == 1))
    pictures = _Pictures(tiles, side, grid[:, 1], (padded - shown) // 2)
    whole = pictures.of_whole(picture, (place + side**2).clamp(max=side**2 - 1))
    if limit is None:
        parts = pictures.at(picture, row, column)
    else:
        parts = _resized(pictures, picture, torch.stack([row, column], -1), shown, scaled)
    features = torch.where((place < 0)[:, None], whole, parts)
    joined = features if newline is None else torch.where(is_end[:, None], newline.to(features), features)
    return [joined], counts


def _shown(sizes: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
    """How many rows and columns of the features are of the picture rather than of its padding, on two sides alike."""
    scale = padded.double() / sizes.double()
    fitted = (sizes * scale.amin(-1, keepdim=True) + _ROUNDING).floor().long()
    is_wide = (scale[:, 1] < scale[:, 0])[:, None] == torch.tensor([True, False], device=sizes.device)
    return torch.where(is_wide, padded - (padded - fitted) // 2 * 2, padded)


def _scaled_down(shown: torch.Tensor, most: int) -> torch.Tensor:
    """The rows and columns that are left of pictures with more than `most` features."""
    ratio = (shown.prod(-1, keepdim=True).double() / most).sqrt()
    rest = torch.fmod(shown.double(), ratio)
    return torch.where(ratio > 1.1, ((shown - rest) / ratio).round().long(), shown)


class _Pictures:
    """The features of a picture by their row and column in it."""

    def __init__(self, tiles: Tiles, side: int, across: torch.Tensor, padding: torch.Tensor) -> None:
        self._rows = tiles.features.flatten(0, 1)
        self._first = tiles.counts.cumsum(0) - tiles.counts
        self._side, self._across, self._padding = side, across, padding

    def of_whole(self, picture: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Those of the tile that shows the whole picture."""
        return self._rows[self._first[picture] * self._side**2 + place]

    def at(self, picture: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """Those of its own tiles; any of them for a place that is not in the picture."""
        side = self._side
        row, column = (
            (row + self._padding[:, 0][picture]).clamp(min=0),
            (column + self._padding[:, 1][picture]).clamp(min=0),
        )
        tile = self._first[picture] + 1 + row // side * self._across[picture] + column // side
        rows: Any = self._rows.shape[0]
        return self._rows[((tile * side + row % side) * side + column % side).clamp(max=rows - 1)]


def _resized(
    pictures: _Pictures, picture: torch.Tensor, places: torch.Tensor, shown: torch.Tensor, scaled: torch.Tensor
) -> torch.Tensor:
    """Features between those of the picture, as bilinear interpolation finds them."""
    scale = shown.float() / scaled.float()
    source = ((places + 0.5) * scale[picture] - 0.5).clamp(min=0)
    before = source.floor()
    last = shown[picture] - 1
    near = torch.minimum(before.long(), last), torch.minimum(before.long() + 1, last)
    share = (source - before).to(pictures.at(picture, *near[0].unbind(-1)).dtype)
    down, across = (part[:, None] for part in share.unbind(-1))
    upper, lower = (
        pictures.at(picture, edge[:, 0], near[0][:, 1]) * (1 - across)
        + pictures.at(picture, edge[:, 0], near[1][:, 1]) * across
        for edge in near
    )
    return upper * (1 - down) + lower * down


_EXPORTING = "torch.compiler.is_exporting()"

# Of each picture how many tiles it has, that it is cut at all, and its own tiles among those that fill the batch.
_COUNT = "image_size_to_num_patches(image_size=size, grid_pinpoints=$resolutions, patch_size=$side)"
_COUNTS = f"[{_COUNT} for size in $sizes]"
_COUNTS_OF_CUT = f"[{_COUNT} if is_cut else 1 for size, is_cut in zip($sizes, $cut)]"
_SINGLE = "[count == 1 for count in $counts for _ in range(count)]"
_OWN = "[tiles[:count] for tiles, count in zip($pixels, $counts)]"

_AT_ONCE = pairs_of(
    (_COUNTS, f"tile_counts($sizes, $resolutions, $side) if {_EXPORTING} else {_COUNTS}"),
    (_COUNTS_OF_CUT, f"tile_counts($sizes, $resolutions, $side, $cut) if {_EXPORTING} else {_COUNTS_OF_CUT}"),
    (_SINGLE, f"torch.repeat_interleave($counts == 1, $counts) if {_EXPORTING} else {_SINGLE}"),
    (_OWN, "first_tiles($pixels, $counts)"),
    ("[True] * len($sizes)", f"None if {_EXPORTING} else [True] * len($sizes)"),
    ("torch.split($features, $counts, dim=$axis)", "split_tiles($features, $counts, dim=$axis)"),
    ("torch.split($features, $counts)", "split_tiles($features, $counts)"),
    (
        "torch.tensor($lengths, dtype=$dtype, device=$device)",
        "torch.as_tensor($lengths, dtype=$dtype, device=$device)",
    ),
)

_OVER = Template("enumerate($features)")
_CUT = Template("get_anyres_image_grid_shape($sizes[$index], $resolutions, $side)")
_NEWLINE = Template("$newline is not None")
_LIMIT = Template("int($limit.strip('anyres_max_'))")
_APPENDED = Template("$all.append($one)")
_LENGTHS = (Template("$feature.size(0)"), Template("$feature.shape[0]"))


class AllTiles(Exchange):
    """Counts, splits and the loop over the pictures, each for all of them while the model is exported."""

    pairs = _AT_ONCE

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        over, cut = _OVER.match(node.iter), _CUT.within(node)
        newline = [match for match in _NEWLINE.within(node) if isinstance(match.holes["newline"], ast.Name)]
        made = [match for statement in node.body for match in _APPENDED.within(statement)]
        lengths = [match for match in made if any(length.match(match.holes["one"]) for length in _LENGTHS)]
        features = [match for match in made if match not in lengths]
        if over is None or not cut or not newline or len(features) != 1:
            return node

        known = f"({cut[0].text('resolutions')}, {cut[0].text('side')})"
        limit = next((match.text("limit") for match in _LIMIT.within(node)), None)
        targets = f"{features[0].text('all')}, {lengths[0].text('all') if lengths else '_'}"
        packed = f"packed_tiles($features, {cut[0].text('sizes')}, {known}, {newline[0].text('newline')}, {limit})"
        choice = Template(f"if isinstance($features, Tiles):\n    {targets} = {packed}\nelse:\n    pass")
        (branches,) = choice.statements(over, node)
        assert isinstance(branches, ast.If)
        branches.orelse = [node]
        return ast.fix_missing_locations(branches)


def _calls(name: str, tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == name for node in ast.walk(tree))


def _goes_over_pictures(function: ast.FunctionDef) -> bool:
    """Whether it counts tiles or puts them together picture by picture, in whatever way."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.ListComp)]
    names = ("image_size_to_num_patches", "get_anyres_image_grid_shape")
    return any(_calls(name, loop) for loop in loops for name in names)


_replace = rewrite(
    AllTiles,
    Tiles=Tiles,
    first_tiles=first_tiles,
    packed_tiles=packed_tiles,
    split_tiles=split_tiles,
    tile_counts=tile_counts,
)


PATCHES = (
    construct_patch(
        name="pictures in tiles",
        marker=r"image_size_to_num_patches\(|get_anyres_image_grid_shape\(",
        mentions=("image_size_to_num_patches(", "get_anyres_image_grid_shape("),
        replace=_replace,
        has=_goes_over_pictures,
        reason="the loops over the pictures need their sizes, and fix how many there are",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
