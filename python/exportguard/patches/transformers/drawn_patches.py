"""Patches of pictures of several sizes in one batch, drawn up to as many as the largest has: for all pictures at once.

The model goes from picture to picture, which fixes how many there are. It draws in which order the patches stand, which
says nothing, as each has its position with it; here they stand in that of the picture. Where a picture has more patches
than are wanted they are drawn here as well.
"""

from __future__ import annotations

from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange

# Without annotations in torch 2.11 to 2.13.
_check: Any = torch._check


def scaled_tables(
    table: torch.Tensor, heights: torch.Tensor, widths: torch.Tensor, height: Any, width: Any
) -> torch.Tensor:
    """A table of positions, (1, channels, rows, columns), scaled to the size of each picture, and zeros beyond it."""
    rows = _shares(table.shape[2], heights, height)
    columns = _shares(table.shape[3], widths, width)
    scaled = rows[:, None] @ table.float() @ columns[:, None].transpose(-1, -2)
    return scaled.to(table.dtype)


def _shares(entries: int, sizes: torch.Tensor, longest: Any) -> torch.Tensor:
    """How much of each entry of a table is in each place, from corner to corner: (pictures, places, entries)."""
    places = torch.arange(longest, device=sizes.device)
    apart = (entries - 1) / (sizes - 1).clamp(min=1).float()
    read = places * apart[:, None]
    shares = 1 - (read[..., None] - torch.arange(entries, device=sizes.device)).abs()
    return torch.where((places < sizes[:, None])[..., None], shares.clamp(min=0), 0)


def places_of_patches(mask: torch.Tensor, count: Any) -> torch.Tensor:
    """Picture and place of `count` patches of each picture, (pictures * count, 2): those within it, then others."""
    count = count.item() if isinstance(count, torch.Tensor) else count
    _check(count >= 1)
    _check(count <= mask.shape[1])
    is_inside = mask.bool()
    draws = is_inside.sum(1, keepdim=True) > count
    order = torch.where(draws, torch.rand(mask.shape, device=mask.device), 0) + (~is_inside).float() * 2
    places = order.sort(dim=1, stable=True).indices[:, :count]
    pictures = torch.arange(mask.shape[0], device=mask.device)[:, None].expand_as(places)
    return torch.stack([pictures, places], dim=-1).flatten(0, 1)


#: Lists with an entry for each picture become one tensor.
AllPictures = exchange(
    "AllPictures",
    (
        "[nn.functional.pad("
        'nn.functional.interpolate($table, size=(h, w), mode="bilinear", align_corners=True),'
        "(0, $width - w, 0, $height - h)) for h, w in zip($heights, $widths)]",
        "[scaled_tables($table, $heights, $widths, $height, $width)]",
    ),
    ("min($sizes.max(), $most)", "$sizes.max().clamp(max=$most)"),
    (
        """
inside = $mask.nonzero(as_tuple=False)
outside = (1 - $mask).nonzero(as_tuple=False)
pictures = inside[:, 0].unique()
rows = [inside[inside[:, 0] == u] for u in pictures]
other_rows = [outside[outside[:, 0] == u] for u in pictures]
numbers = [v.size(0) for v in rows]
other_numbers = [v.size(0) for v in other_rows]
missing = [$count - v for v in numbers]
chosen = []
for i, (v, other, p) in enumerate(zip(numbers, other_numbers, missing)):
    if p <= 0:
        drawn = torch.multinomial(torch.ones(v).float(), $count)
        chosen.append(rows[i][drawn])
    else:
        padding = torch.multinomial(torch.ones(other).float(), p, replacement=True)
        chosen.append(torch.cat([rows[i], other_rows[i][padding]], dim=0))
chosen = torch.cat(chosen, dim=0)
""",
        "chosen = places_of_patches($mask, $count)",
    ),
)


_replace = rewrite(AllPictures, places_of_patches=places_of_patches, scaled_tables=scaled_tables)


PATCHES = (
    construct_patch(
        name="patches that are drawn",
        marker=r"torch\.multinomial\(torch\.ones\(",
        mentions=("torch.multinomial(torch.ones(",),
        replace=_replace,
        reason="the lists with an entry for each picture fix how many there are, and how many patches each has is data",
        upstream="https://github.com/pytorch/pytorch/issues/147096",
    ),
)
