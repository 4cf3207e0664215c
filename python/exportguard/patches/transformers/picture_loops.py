"""Loops over pictures that apply a layer to each of them in its rows and columns: once for the patches of all."""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.picture_grids import OwnStarts, in_blocks, patches_of
from exportguard.source.editing import placed, rewrite


def resized_positions(table: torch.Tensor, grid_thw: torch.Tensor, side: int, mode: str) -> torch.Tensor:
    """The entries of a square table of positions, (side * side, width), resized to the patches of each picture."""
    from transformers.vision_utils import get_vision_interpolation_indices_and_weights as taps_of

    weights: torch.Tensor
    places, weights = rewrite(OwnStarts)(taps_of)(grid_thw, side, mode=mode)
    entries = table[places].float() * weights[..., None]
    return entries.sum(1).to(table.dtype)


def merged_rows(merger: Any, states: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
    """The merged blocks of pictures, (1, tokens, width): each begins, ends its rows and itself with a token of its own.

    `states` are the patches of all pictures, row by row.
    """
    side = merger.spatial_merge_size
    blocks = in_blocks(merger.before_rms(states)[0], grid_thw, side)
    kernels = blocks.transpose(1, 2).reshape(-1, blocks.shape[-1], side, side)
    merged = merger.proj_out(merger.proj_act(merger.proj_conv(kernels))).flatten(1)
    height, width = (grid_thw[:, 1:] // side).unbind(-1)
    picture, _, place, _ = patches_of(torch.stack([one := torch.ones_like(height), height * (width + 1) + 2, one], -1))
    across, last = width[picture], (height * (width + 1) + 1)[picture]
    row, column = (place - 1) // (across + 1), (place - 1) % (across + 1)
    before = (height * width).cumsum(0) - height * width
    place_of_block = before[picture] + row * across + column
    is_own = (place > 0) & (place < last) & (column < across)
    features = torch.where(
        is_own[:, None], merged[torch.where(is_own, place_of_block, 0)], merger.image_newline.to(merged.dtype)
    )
    tokens = merger.mlp(features)
    tokens = torch.where((place == 0)[:, None], merger.image_begin.to(tokens.dtype), tokens)
    tokens = torch.where((place == last)[:, None], merger.image_end.to(tokens.dtype), tokens)
    return merger.after_rms(tokens[None])  # type: ignore[no-any-return]


def convolved(states: torch.Tensor, grid_thw: Any, merge: int, layer: torch.nn.Conv2d) -> torch.Tensor:
    """A convolution of each channel, the size kept, over each frame; patches follow in blocks of `merge` by `merge`."""
    grid = torch.as_tensor(grid_thw, device=states.device)
    picture, frame, row, column = patches_of(grid, merge)
    counts = grid.prod(-1)
    _, height, width = grid[picture].unbind(-1)
    first = (counts.cumsum(0) - counts)[picture] + frame * height * width
    total = torch.zeros_like(states)
    for down in range(layer.weight.shape[2]):
        for across in range(layer.weight.shape[3]):
            rows = row + down - layer.weight.shape[2] // 2
            columns = column + across - layer.weight.shape[3] // 2
            is_inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
            block = rows // merge * (width // merge) + columns // merge
            place = first + (block * merge + rows % merge) * merge + columns % merge
            near = states[torch.where(is_inside, place, 0)] * layer.weight[:, 0, down, across]
            total = total + torch.where(is_inside[:, None], near, 0)
    return total if layer.bias is None else total + layer.bias


#: What a loop goes over, a word of its body, and the statement for all pictures.
_LOOPS = (
    (
        "grid_thw",
        "interpolate_pos_encoding",
        "position_embeddings_list.append(resized_positions(self.position_embedding.weight[1:], grid_thw, "
        "self.position_edge, self.config.interpolate_mode))",
    ),
    (
        "zip(grid_thw.tolist(), split_items)",
        "patch_merger",
        "processed_items.append(merged_rows(self.patch_merger, hidden_states, grid_thw))",
    ),
    (
        "zip(torch.split(gated, lengths, dim=0), grid_thw)",
        "spatial_conv",
        "conv_outputs.append(convolved(gated, grid_thw, merge, self.spatial_conv))",
    ),
)
#: What was only made for such a loop, or holds the sizes as Python numbers for it.
_ONLY_FOR_LOOPS = {
    "split_sizes = grid_thw.prod(dim=-1).tolist()": "pass",
    "split_items = torch.split(hidden_states, split_sizes, dim=1)": "pass",
    "lengths = [temporal * height * width for temporal, height, width in grid_thw]": "pass",
    "grid_thw_list = grid_thw.tolist()": "grid_thw_list = grid_thw",
}


def _call_for(loop: ast.For) -> str | None:
    """What a loop over the pictures becomes; None for a loop that does something else, such as counting positions."""
    over, body = ast.unparse(loop.iter), ast.unparse(loop)
    return next((call for source, word, call in _LOOPS if source == over and word in body), None)


def _is_meant(definition: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.For) and _call_for(node) is not None for node in ast.walk(definition))


class AllPictures(ast.NodeTransformer):
    """The loop over the pictures becomes one call, what was made for it goes."""

    def visit_For(self, node: ast.For) -> ast.AST:
        call = _call_for(node)
        return node if call is None else placed(ast.parse(call).body[0], node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        text = _ONLY_FOR_LOOPS.get(ast.unparse(node))
        return node if text is None else placed(ast.parse(text).body[0], node)


_replace = rewrite(AllPictures, convolved=convolved, merged_rows=merged_rows, resized_positions=resized_positions)


PATCHES = (
    construct_patch(
        name="layers over the rows and columns of pictures",
        marker=r"for t, h, w in grid_thw:|for grid, item in zip\(grid_thw|, width\) in zip\(torch|grid_thw_list = grid",
        mentions=("in grid_thw:", "in zip(grid_thw", ", width) in zip(torch", "grid_thw_list = grid"),
        replace=_replace,
        has=_is_meant,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
