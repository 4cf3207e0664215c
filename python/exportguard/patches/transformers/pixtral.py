"""Pictures of several sizes in one batch of pixels: the patches of all of them without those that pad."""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.patches.transformers.packed_attention import packed_mask
from exportguard.source.editing import placed, rewrite

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


class Packed(ast.NodeTransformer):
    """The lists of patches, positions and lengths, one entry for each picture, become one object with all of them."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.targets[0]) == "patch_embeds_list":
            node.value = _expression("PackedPatches(patch_embeds, image_sizes, self.patch_size)", node)
        if ast.unparse(node.value) == "[(height, width)] * batch_size":
            node.value = _expression("whole_pictures(pixel_values)", node)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        if ast.unparse(node.iter) != "patch_embeds_list":
            return node
        return ast.copy_location(ast.Expr(_expression("position_ids.append(patch_embeds_list.places)", node)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node)
        if text == "torch.cat([p.flatten(1).T for p in patch_embeds_list], dim=0)":
            return _expression("patch_embeds_list.joined", node)
        if text.startswith("generate_block_attention_mask("):
            return _expression("patch_embeds_list.mask(patch_embeds)", node)
        return node


def _expression(text: str, like: ast.AST) -> ast.expr:
    return placed(ast.parse(text, mode="eval").body, like)


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
