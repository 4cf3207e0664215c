"""Pictures of several sizes in one batch of pixels: the patches of all of them without those that pad."""

from __future__ import annotations

from typing import Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.patches.transformers.packed_attention import packed_mask
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange

_MODULE = "transformers.models.pixtral.modeling_pixtral"


class PackedPatches:
    """The patches of pictures, (pictures, width, rows, columns), of which each has as many as its size tells."""

    def __init__(self, patches: torch.Tensor, sizes: object, patch_size: int) -> None:
        sizes = torch.as_tensor(sizes).to(patches.device) // patch_size
        rows, columns = (torch.arange(size, device=patches.device) for size in patches.shape[-2:])
        counts = (rows[None, :, None] < sizes[:, :1, None]) & (columns[None, None] < sizes[:, 1:, None])
        picture, row, column = counts.nonzero().unbind(-1)
        self.joined = patches.movedim(1, -1)[picture, row, column]
        torch._check(self.joined.shape[0] > 0)  # type: ignore[no-untyped-call]  # attention asks
        self.places = torch.stack([row, column], dim=-1)
        self.lengths = sizes.prod(-1)

    def mask(self, tensor: torch.Tensor) -> torch.Tensor:
        """The patches that each may see: those of its picture."""
        return packed_mask(self.lengths, tensor[None])


def whole_pictures(pixels: torch.Tensor) -> torch.Tensor:
    """Heights and widths of pictures without padding."""
    count: Any = pixels.shape[0]
    sides: list[Any] = list(pixels.shape[-2:])
    return torch.stack([torch.full((count,), side, device=pixels.device) for side in sides], dim=-1)


#: The lists of patches, positions and lengths, one entry for each picture, become one object with all of them.
Packed = exchange(
    "Packed",
    (
        """
$count, _, $height, $width = $pixels.shape
$sizes = [($height, $width)] * $count
""",
        """
$count, _, $height, $width = $pixels.shape
$sizes = whole_pictures($pixels)
""",
    ),
    (
        "$parts = [embed[..., :size[0] // $patch, :size[1] // $patch] for embed, size in zip($patches, $sizes)]",
        "$parts = PackedPatches($patches, $sizes, $patch)",
    ),
    ("torch.cat([part.flatten(1).T for part in $parts], dim=0)", "$parts.joined"),
    (
        """
for part in $parts:
    rows, columns = torch.meshgrid($heights, $widths, indexing="ij")
    $positions.append(torch.stack([rows.flatten(), columns.flatten()], dim=-1))
""",
        "$positions.append($parts.places)",
    ),
    (
        "generate_block_attention_mask([part.shape[-2] * part.shape[-1] for part in $parts], $tokens)",
        "$parts.mask($tokens)",
    ),
)


PATCHES = (
    Patch(
        name="packed pictures of pixtral",
        kind="transformers",
        target=f"{_MODULE}.PixtralVisionModel.forward",
        reason="the loops over the pictures fix how many there are, and the size of each",
        upstream="https://github.com/huggingface/transformers/pull/42822",
        versions="transformers>=4.57",
        replace=rewrite(Packed, PackedPatches=PackedPatches, whole_pictures=whole_pictures),
    ),
)
