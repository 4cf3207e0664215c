"""Blocks of patches that become one token, in a loop over the pictures: gathered for all pictures at once."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.picture_grids import in_blocks, patches_of
from exportguard.source.editing import rewrite
from exportguard.source.reading import copied
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer


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


class _Merger(NamedTuple):
    """A function over pictures: its first statements, expressions of the rest, the layers that the loop applies, if
    that matters, and what it does for all pictures."""

    begins: Template
    has: tuple[Template, ...]
    layers: int | None
    at_once: Template


_MERGERS = (
    # A layer over the unfolded blocks of each picture, whose size is told in pixels.
    _Merger(
        Template("""
shapes = [(size[0] // $patch, size[1] // $patch) for size in $sizes]
lengths = [height * width for height, width in shapes]
"""),
        (
            Template("enumerate($states.split($lengths))"),
            Template("torch.nn.functional.unfold($picture, kernel_size=$side, stride=$side)"),
            Template("$joined = $layer($joined)"),
        ),
        0,
        Template("""
blocks = in_blocks($states, as_grid($sizes, $patch), $side)
return $layer(blocks.transpose(1, 2).flatten(1))
"""),
    ),
    # A norm of each patch and three layers over the blocks, whose patches follow each other row by row.
    _Merger(
        Template("""
chunks = $states.split($grid.prod(dim=1).tolist(), dim=0)
down, across = $sides
"""),
        (
            Template("zip($chunks, $grid)"),
            Template("$block.reshape($frames * $rows * $columns, $down * $across * $width)"),
        ),
        4,
        Template("""
blocks = in_blocks($layer_0($states), $grid, $sides[0])
return $layer_3($layer_2($layer_1(blocks.flatten(1))))
"""),
    ),
    # Each block made one patch.
    _Merger(
        Template("chunks = $states.split($grid.prod(dim=1).tolist(), dim=0)"),
        (
            Template("zip($chunks, $grid, $merges)"),
            Template(
                "torch.nn.functional.interpolate($picture, size=($height // $side, $width // $side), mode='bilinear')"
            ),
        ),
        0,
        Template("return centers_of_blocks($states, $grid, $merges)"),
    ),
    # The frames of a clip by twos: the even ones beside the odd ones.
    _Merger(
        Template("frames, sizes = $grid[:, 0], $grid[:, 1:]"),
        (
            Template("$blocks.prod(-1) // $side ** 2"),
            Template("range(0, $count, 2)"),
            Template("range(1 if $count > 1 else 0, $count, 2)"),
            Template("torch.index_select($states, dim=0, index=$even)"),
        ),
        0,
        Template("""
first, second = frame_pairs($grid, $side)
return torch.concat([$states[first], $states[second]], dim=-1)
"""),
    ),
)

_PADDED = Template("range($states.size(0))")
_PICTURE = Template("$states[$place]")
_SHAPE = Template("height, width = $shapes[$place]")
_PROJECTED = Template("$projected = $projector($feature)")
_KEPT = Template("$all.append($projected)")
_ALL_PROJECTED = Template("$all = [projected_blocks($states, $shapes, $projector)]")


def _layers(tree: ast.AST) -> list[ast.expr]:
    """The modules of its own that a function calls, in their order."""
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)
    return [call.func for call in calls if ast.unparse(call.func).startswith("self.")]


def _within(loop: list[ast.stmt], merger: _Merger, match: Match) -> Match | None:
    """What the rest of a function has of a merger, with what its beginning has; None if it is another one."""
    for template in merger.has:
        agreeing = (match.joined(found) for found in template.within(*loop))
        known = next((joined for joined in agreeing if joined is not None), None)
        if known is None:
            return None
        match = known
    layers = [layer for statement in loop if isinstance(statement, ast.For) for layer in _layers(statement)]
    if len(layers) != merger.layers:
        return None
    match.holes |= {f"layer_{number}": layer for number, layer in enumerate(layers)}
    return match


class AllBlocks(Transformer):
    """The body of a merger, or its loop, becomes a gather of all blocks and the layers that it applies to each."""

    def visit_For(self, node: ast.For) -> ast.AST:
        match = _PADDED.match(node.iter)
        for template in (_PICTURE, _SHAPE, _KEPT, _PROJECTED):
            agreeing = (match.joined(found) for found in template.within(*node.body)) if match is not None else iter(())
            match = next((joined for joined in agreeing if joined is not None), None)
        return node if match is None else _ALL_PROJECTED.statements(match, node)[0]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for merger in _MERGERS:
            for place in range(len(node.body) - len(merger.begins)):
                rest = node.body[place + len(merger.begins) :]
                begin = merger.begins.match(*node.body[place : place + len(merger.begins)])
                match = _within(rest, merger, begin.with_names()) if begin is not None else None
                if match is not None:
                    node.body = [*node.body[:place], *merger.at_once.statements(match, node.body[place])]
                    return ast.fix_missing_locations(node)
        return node


def _is_meant(definition: ast.FunctionDef) -> bool:
    return ast.unparse(AllBlocks().visit(copied(definition))) != ast.unparse(definition)


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
        marker=r"split\(\w*grid_thw|for .* in \w*image_sizes|range\(\w+\.size\(0\)\)|range\(0, \w+, 2\)",
        mentions=("split(", "image_sizes", ".size(0))", ", 2)"),
        has=_is_meant,
        replace=_replace,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/huggingface/transformers/pull/42822",
    ),
)
