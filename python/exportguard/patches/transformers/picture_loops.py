"""Loops over pictures that apply a layer to each of them in its rows and columns: once for the patches of all."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.picture_grids import in_blocks, patches_of
from exportguard.source.editing import rewrite
from exportguard.source.errors import RewriteError
from exportguard.source.reading import copied, definition_of, is_same_tree
from exportguard.source.templates import Exchange, Match, Template, pairs_of
from exportguard.source.wrapping import innermost

#: How the method that is called for each picture resizes its table: to the size of the picture, or by scales of a size
#: that is a little larger, so that rounding loses no row (the places that are read are shifted by it).
_TO_THE_SIZE = Template(
    "nn.functional.interpolate($table, size=($height, $width), mode=self.config.interpolate_mode, align_corners=False)"
)
_BY_SCALES = Template(
    "nn.functional.interpolate($table, scale_factor=($down, $across), mode=self.config.interpolate_mode, "
    "align_corners=False)"
)
_MODES = ("bilinear", "bicubic")
_SCALE = Template("scale = (int($size) + $margin) / self.position_edge")


def resized_positions(embedding: Any, grid_thw: torch.Tensor) -> torch.Tensor:
    """The entries of a square table of positions, resized to the patches of each picture, (patches, width).

    Raises:
        RewriteError: the module resizes its table in another way than these two.
    """
    margin = _margin(definition_of(innermost(type(embedding).interpolate_pos_encoding)))
    side, mode = embedding.position_edge, embedding.config.interpolate_mode
    if margin is None or mode not in _MODES:
        raise _unknown(embedding, "it resizes positions in another way than to the size of a picture")
    table: torch.Tensor = embedding.position_embedding.weight[1:]
    picture, _, row, column = patches_of(grid_thw)
    height, width = grid_thw[:, 1:][picture].unbind(-1)
    rows, down = taps_of(row, height, margin, side, mode)
    columns, across = taps_of(column, width, margin, side, mode)
    places = (rows[:, :, None] * side + columns[:, None]).flatten(1)
    entries: torch.Tensor = table[places].float() * (down[:, :, None] * across[:, None]).flatten(1)[..., None]
    return entries.sum(1).to(table.dtype)


def _margin(definition: ast.FunctionDef) -> float | None:
    """What the method adds to the rows and columns of a picture before it scales by them; 0 where it takes a size."""
    sizes = [argument.arg for argument in definition.args.args[-2:]]
    for match in _TO_THE_SIZE.within(definition):
        return 0.0 if [match.text("height"), match.text("width")] == sizes else None
    scales = {match.names["scale"]: match for match in _SCALE.within(definition)}
    for match in _BY_SCALES.within(definition):
        read = [scales.get(match.text(name)) for name in ("down", "across")]
        margins = {one.text("margin") for one in read if one is not None}
        is_known = [one and one.text("size") for one in read] == sizes and len(margins) == 1
        return float(ast.literal_eval(margins.pop())) if is_known else None
    return None


def taps_of(
    place: torch.Tensor, size: torch.Tensor, margin: float, side: int, mode: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which entries of an axis of `side` make the one at `place` of an axis of `size`, and their weights: (places, n).

    As `torch.nn.functional.interpolate` has them with `align_corners=False` and a scale of `(size + margin) / side`:
    two for "bilinear", four for "bicubic" (the kernel of Keys, "Cubic convolution interpolation for digital image
    processing", 1981, with a = -0.75).
    """
    source = (place + 0.5) * (side / (size + margin)) - 0.5
    if mode == "bilinear":  # an axis that keeps its size is copied, whatever the scale is (UpSample.h of ATen)
        source = torch.where(size == side, place, source)
    below = source.floor()
    near = torch.arange(2, device=place.device) if mode == "bilinear" else torch.arange(-1, 3, device=place.device)
    far = (source[:, None] - below[:, None] - near).abs()
    if mode == "bilinear":
        weights = 1 - far
    else:
        inner = (1.25 * far - 2.25) * far * far + 1
        weights = torch.where(far <= 1, inner, -0.75 * (((far - 5) * far + 8) * far - 4))
    return (below[:, None].long() + near).clamp(0, side - 1), weights


#: What the two mergers that are known read of themselves: blocks become tokens, and each row of them ends with a token
#: of its own. The one of HunYuan-VL takes pictures, each between two more tokens, that of HY-V4-VL frames.
_ROWS = {"before_rms", "proj_conv", "proj_act", "proj_out", "image_newline"}
_ROWS_AND_ENDS = _ROWS | {"mlp", "image_begin", "image_end", "after_rms"}


def merged_rows(merger: Any, states: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
    """The merged blocks of pictures, (1, tokens, width), with what each row, and maybe each picture, has beside them.

    `states` are the patches of all pictures, row by row.

    Raises:
        RewriteError: the merger does something else with the blocks.
    """
    read = _read_by(type(merger))
    if read not in (_ROWS, _ROWS_AND_ENDS):
        raise _unknown(merger, f"it reads {', '.join(sorted(read))}")
    side = merger.spatial_merge_size
    blocks = in_blocks(merger.before_rms(states)[0], grid_thw, side)
    kernels = blocks.transpose(1, 2).reshape(-1, blocks.shape[-1], side, side)
    merged = merger.proj_out(merger.proj_act(merger.proj_conv(kernels))).flatten(1)
    height, width = (grid_thw[:, 1:] // side).unbind(-1)
    if read == _ROWS:
        return _with_newlines(merged, merger.image_newline, grid_thw[:, 0], height, width)[None]
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


def _with_newlines(
    blocks: torch.Tensor, newline: torch.Tensor, frames: torch.Tensor, height: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """The blocks of all frames, (blocks, width), with a token behind each row of them."""
    picture, frame, row, column = patches_of(torch.stack([frames, height, width + 1], dim=-1))
    counts, across = frames * height * width, width[picture]
    place = (counts.cumsum(0) - counts)[picture] + (frame * height[picture] + row) * across + column
    is_block = (column < across)[:, None]
    return torch.where(is_block, blocks[torch.where(column < across, place, 0)], newline.to(blocks.dtype))


def _unknown(module: object, what: str) -> RewriteError:
    return RewriteError(
        f"{type(module).__name__} is called for each of the pictures, which only becomes one call for all of them "
        f"where it is known what it does: {what}. Convert the part of the model behind it, with the features of "
        "pictures as an input"
    )


def _read_by(cls: Any) -> set[str]:
    """The names that the forward of a module reads of it, but for how many patches a block has."""
    nodes = ast.walk(definition_of(innermost(cls.forward)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    own = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "self"}
    return own - {"spatial_merge_size"}


def convolved(states: torch.Tensor, grid_thw: object, merge: int, layer: torch.nn.Conv2d) -> torch.Tensor:
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


_AT_ONCE = pairs_of(
    (
        """
for frames, height, width in $grid:
    $found.append($module.interpolate_pos_encoding($states, height, width).squeeze(0).repeat(frames, 1))
""",
        "$found.append(resized_positions($module, $grid))",
    ),
    (
        """
lengths = $grid.prod(dim=-1).tolist()
parts = torch.split($states, lengths, dim=1)
found = []
for sizes, part in zip($grid.tolist(), parts):
    _, height, width = sizes
    found.append($merger(part, size=(height, width)))
""",
        "found = [merged_rows($merger, $states, $grid)]",
    ),
)

# A convolution of the frames of each picture, between two changes of their order in memory.
_LENGTHS = Template("lengths = [frames * height * width for frames, height, width in $grid]")
_FRAMES = Template("zip(torch.split($states, $lengths, dim=0), $grid)")
_BLOCKS = Template("$height // $merge")
_CONVOLVED = Template("$found.append(convolved($states, $grid, $merge, $layer))")
_REORDERING = {"view", "permute", "reshape", "append"}
_NUMBERS = Template("numbers = $grid.tolist()")


def _convolution(loop: ast.For) -> Match | None:
    """What the loop convolves, if it does nothing else with the frames; $lengths are those it splits them by."""
    match, blocks = _FRAMES.match(loop.iter), _BLOCKS.within(loop)
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    methods = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    layers = [method for method in methods if isinstance(method.value, ast.Name) and method.value.id == "self"]
    others = {method.attr for method in methods if method not in layers} - {"split"}
    kept = [method.value for method in methods if method.attr == "append"]
    if match is None or not blocks or len(layers) != 1 or others != _REORDERING:
        return None
    match.holes |= {"merge": blocks[0].holes["merge"], "layer": layers[0], "found": kept[0]}
    return match


class AllPictures(Exchange):
    """The loop over the pictures becomes one call, what was made for it goes."""

    pairs = _AT_ONCE

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for place, statement in enumerate(node.body):
            match = _convolution(statement) if isinstance(statement, ast.For) else None
            lengths = _LENGTHS.match(node.body[place - 1]) if match is not None else None
            if match is not None and lengths is not None and lengths.names["lengths"] == match.text("lengths"):
                node.body[place - 1 : place + 1] = _CONVOLVED.statements(match, statement)
                break
        grids = (part.value for part in ast.walk(node) if _is_grid_for_layer(part))
        handed = {grid.id for grid in grids if isinstance(grid, ast.Name)}
        node.body = [_without_numbers(statement, handed) for statement in node.body]
        return node


def _is_grid_for_layer(node: ast.AST) -> TypeGuard[ast.keyword]:
    return isinstance(node, ast.keyword) and node.arg == "grid_thw"


def _without_numbers(statement: ast.stmt, handed: set[str]) -> ast.stmt:
    """The sizes of pictures that are handed to layers as they are, not as Python's numbers."""
    match = _NUMBERS.match(statement)
    if match is None or match.names["numbers"] not in handed:
        return statement
    return Template("numbers = $grid").statements(match, statement)[0]


def _is_meant(definition: ast.FunctionDef) -> bool:
    return not is_same_tree(AllPictures().visit(copied(definition)), definition)


_replace = rewrite(AllPictures, convolved=convolved, merged_rows=merged_rows, resized_positions=resized_positions)


PATCHES = (
    construct_patch(
        name="layers over the rows and columns of pictures",
        marker=r"\b(for|zip)\b.*grid_thw|grid_thw\.tolist",
        mentions=("grid_thw",),
        replace=_replace,
        has=_is_meant,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
