"""Blocks of patches that become one token, in a loop over the pictures: gathered for all pictures at once."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.picture_grids import in_blocks, patches_of
from exportguard.source.editing import placed, rewrite


def as_grid(sizes: torch.Tensor, patch: int) -> torch.Tensor:
    """Heights and widths in pixels as frames, rows and columns of patches."""
    return torch.nn.functional.pad(sizes // patch, (1, 0), value=1)


def frame_pairs(grid_thw: torch.Tensor, merge: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The places of the blocks of each first frame of two, and of each second one: a single frame is both."""
    frames, blocks = grid_thw[:, 0], grid_thw[:, 1:].prod(-1) // merge**2
    pairs = (frames // 2).clamp(min=1)
    clip, pair, block, _ = patches_of(torch.stack([pairs, blocks, torch.ones_like(blocks)], dim=-1))
    counts = frames * blocks
    first = (counts.cumsum(0) - counts)[clip] + 2 * pair * blocks[clip] + block
    return first, first + torch.where(frames > 1, blocks, 0)[clip]


def projected_blocks(states: torch.Tensor, shapes: torch.Tensor, projector: Any) -> torch.Tensor:
    """What `projector` makes of each block of patches; `states`, (pictures, patches, width), are padded behind."""
    side = projector.factor
    grid = torch.nn.functional.pad(shapes, (1, 0), value=1)
    picture, _, row, column = patches_of(grid, side)
    length: Any = states.shape[1]
    rows = states.flatten(0, 1)[picture * length + row * shapes[:, 1][picture] + column]
    return projector(rows.view(-1, side, side, states.shape[-1])).flatten(0, 2)  # type: ignore[no-any-return]


def centers_of_blocks(states: torch.Tensor, grid_thw: torch.Tensor, merges: torch.Tensor) -> torch.Tensor:
    """Each block made one patch by bilinear resizing: the mean of the patches around its center."""
    sides = torch.stack([torch.ones_like(merges), merges, merges], dim=-1)
    counts, blocks = grid_thw.prod(-1), (grid_thw // sides).prod(-1)
    picture = torch.repeat_interleave(blocks)
    block = torch.arange(picture.shape[0], device=states.device) - (blocks.cumsum(0) - blocks)[picture]
    merge = merges[picture]
    first = (counts.cumsum(0) - counts)[picture] + block * merge**2
    middle = ((merge - 1) // 2, merge // 2)
    around = [states[first + row * merge + column] for row in middle for column in middle]
    return torch.stack(around).mean(0)


#: A line of a loop over the pictures, and what the function does for all of them.
_MERGERS = {
    "tokens_per_image = [h * w for h, w in image_sizes]": """
blocks = in_blocks(image_features, as_grid(image_sizes, self.patch_size), self.spatial_merge_size)
return self.merging_layer(blocks.transpose(1, 2).flatten(1))
""",
    "image_features_chunks = image_features.split(image_grid_thw.prod(dim=1).tolist(), dim=0)": """
blocks = in_blocks(self.pre_norm(image_features), image_grid_thw, self.merge_kernel_size[0])
return self.linear_2(self.act(self.linear_1(blocks.flatten(1))))
""",
    "hidden_states_chunks = hidden_states.split(grid_thw.prod(dim=1).tolist(), dim=0)": """
return centers_of_blocks(hidden_states, grid_thw, merge_sizes)
""",
    "first_slice_offsets = []": """
first, second = frame_pairs(grid_thw, self.spatial_merge_size)
return torch.concat([hidden_states[first], hidden_states[second]], dim=-1)
""",
}


class AllBlocks(ast.NodeTransformer):
    """The body of a merger, or its loop, becomes a gather of all blocks and the layers that it applies to each."""

    def visit_For(self, node: ast.For) -> ast.AST:
        if ast.unparse(node.iter) != "range(last_hidden_state.size(0))":
            return node
        call = "image_features = [projected_blocks(last_hidden_state, spatial_shapes, self.multi_modal_projector)]"
        return placed(ast.parse(call).body[0], node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        texts = [ast.unparse(statement) for statement in node.body]
        found = [body for line, body in _MERGERS.items() if line in texts]
        for body in found:
            node.body = [placed(statement, node.body[0]) for statement in ast.parse(body).body]
        return ast.fix_missing_locations(node)


_MENTIONS = (
    "tokens_per_image = [h * w for",
    "image_features_chunks = image_features.split(",
    "hidden_states_chunks = hidden_states.split(",
    "first_slice_offsets = []",
    "for img_idx in range(last_hidden_state.size(0)):",
)
_names: dict[str, Any] = {
    "as_grid": as_grid,
    "centers_of_blocks": centers_of_blocks,
    "frame_pairs": frame_pairs,
    "in_blocks": in_blocks,
    "projected_blocks": projected_blocks,
}
_replace = rewrite(AllBlocks, **_names)


PATCHES = (
    construct_patch(
        name="merging of patches",
        marker="|".join(map(re.escape, _MENTIONS)),
        mentions=_MENTIONS,
        replace=_replace,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/huggingface/transformers/pull/42822",
    ),
)
