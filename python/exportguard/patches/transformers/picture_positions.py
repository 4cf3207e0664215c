"""Positions of texts with pictures in them, on three axes: computed for all tokens at once.

The models walk from picture to picture in Python, which needs the tokens themselves. What a token gets follows from
sums over the tokens before it: a token of text moves on by one, a picture as a whole by its longer side.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite

_PICTURE, _CLIP = 1, 2  # kinds of tokens; 0 is text
_GRIDS = f"{{{_PICTURE}: image_grid_thw, {_CLIP}: video_grid_thw}}"
_FIRST = "mrope_position_deltas = []"
_FIRST_OF_RANKED = "grid_iter = iter(image_grid_thw) if image_grid_thw is not None else None"
_WALK = "itertools.groupby(enumerate(input_token_type.tolist())"


def positions_with_pictures(
    kinds: torch.Tensor,
    mask: torch.Tensor | None,
    grids: dict[int, torch.Tensor | None],
    merge: int,
    interval: Any = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions, (3, batch, tokens), and how far each row's next one is from its number of tokens.

    `kinds` tells text from pictures and clips, `mask` which tokens count, `grids` the sizes of the pictures of each
    kind, and `interval` how many positions apart the frames of each clip are.
    """
    counted = torch.ones_like(kinds, dtype=torch.bool) if mask is None else mask.bool()
    rank = counted.long().cumsum(1) - 1
    starts = counted & (kinds != _kind_before(kinds, counted))
    offset = rank - torch.where(starts, rank, -1).cummax(1).values
    inside, advance = torch.zeros_like(rank).expand(3, -1, -1), torch.ones_like(rank)
    for kind, grid in grids.items():
        if grid is None:
            continue
        is_kind = kinds == kind
        number = _numbers(starts & is_kind, grid)
        places, longer = _in_pictures(grid[number] // _sides(merge, grid), offset)
        if kind == _CLIP:
            places = torch.cat([_spaced(places[:1], interval, number), places[1:]])
        inside, advance = torch.where(is_kind, places, inside), torch.where(is_kind, longer, advance)
    moves = torch.where(counted & (starts | (kinds == 0)), advance, 0).cumsum(1)
    positions = torch.where(counted, moves - advance + inside, 0)
    return positions, positions.amax((0, 2))[:, None] + 1 - counted.long().sum(1, keepdim=True)


def _numbers(starts: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """The row in `grid` of the picture that began last, over all texts; any row before the first."""
    number = starts.flatten().long().cumsum(0).view(starts.shape) - 1
    return number.clamp(min=0).minimum(torch.full_like(number, grid.shape[0]) - 1)


def _sides(merge: int, grid: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1, merge, merge], device=grid.device)


def _in_pictures(grid: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Frame, row and column of each token in its picture of blocks, and the picture's longer side."""
    _, height, width = grid.unbind(-1)
    places = [offset // (height * width), offset // width % height, offset % width]
    return torch.stack(places), torch.maximum(height, width)


def _spaced(frame: torch.Tensor, interval: Any, number: torch.Tensor) -> torch.Tensor:
    return (frame * (interval[number] if isinstance(interval, torch.Tensor) else interval)).long()


def clip_interval(seconds: Any, rate: Any) -> Any:
    """How many positions the frames of each clip are apart, from the seconds between them."""
    return rate if seconds is None else rate * torch.as_tensor(seconds)


def _kind_before(kinds: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The kind of the last token before each that counts; -1 where there is none."""
    places = torch.where(counted, torch.arange(kinds.shape[1], device=kinds.device), -1).cummax(1).values
    before = torch.nn.functional.pad(places[:, :-1], (1, 0), value=-1)
    return torch.where(before < 0, -1, kinds.gather(1, before.clamp(min=0)))


def ranked_positions(
    kinds: torch.Tensor, mask: torch.Tensor | None, grid: torch.Tensor | None, axes: int, merge: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions, (axes, batch, tokens), that are a token's rank in its text, whatever pictures stand before it.

    The last three axes of a picture's tokens are their column, their row, and the picture's number. A picture may have
    a token that begins it and one that ends it, and each of its rows has one at its end.
    """
    counted = torch.ones_like(kinds, dtype=torch.bool) if mask is None else mask.bool()
    rank = counted.long().cumsum(1) - 1
    positions = rank.expand(axes, -1, -1)
    if grid is not None:
        is_picture = counted & (kinds == _PICTURE)
        starts = is_picture & (kinds != _kind_before(kinds, counted))
        number = _numbers(starts, grid)
        offset = rank - torch.where(starts, rank, -1).cummax(1).values
        _, height, width = (grid // _sides(merge, grid))[number].unbind(-1)
        place = offset - (_lengths(number, is_picture, grid)[number] - height * (width + 1)) // 2
        is_inside = is_picture & (place >= 0) & (place < height * (width + 1))
        inside = torch.stack([place % (width + 1), place // (width + 1), number])
        positions = torch.cat([positions[:-3], torch.where(is_inside, inside, positions[-3:])])
    positions = torch.where(counted, positions, 0)
    return positions, positions.amax((0, 2))[:, None] + 1 - counted.long().sum(1, keepdim=True)


def _lengths(number: torch.Tensor, is_picture: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """How many tokens each picture has in the texts."""
    none = torch.zeros_like(grid[:, 0])
    return none.scatter_add(0, number.flatten(), is_picture.flatten().to(none.dtype))


class AllAtOnce(ast.NodeTransformer):
    """What makes the positions becomes one call; what stands before it, such as other grids, stays."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        texts = [ast.unparse(statement) for statement in node.body]
        if not any(_WALK in text for text in texts):
            return node
        if _FIRST in texts:
            known = f"mm_token_type_ids, attention_mask, {_GRIDS}, spatial_merge_size{_interval(node)}"
            return _ending_in(node, texts.index(_FIRST), f"positions_with_pictures({known})")
        if _FIRST_OF_RANKED in texts:
            known = "mm_token_type_ids, attention_mask, image_grid_thw, num_mrope_axes"
            merge = "self.config.vision_config.spatial_merge_size"
            return _ending_in(node, texts.index(_FIRST_OF_RANKED), f"ranked_positions({known}, {merge})")
        return node


def _ending_in(node: ast.FunctionDef, first: int, call: str) -> ast.FunctionDef:
    """The function with `return call` from its statement `first` on."""
    node.body = [*node.body[:first], placed(ast.parse(f"return {call}").body[0], node.body[first])]
    return ast.fix_missing_locations(node)


def _interval(node: ast.FunctionDef) -> str:
    names = {argument.arg for argument in node.args.args}
    return ", clip_interval(second_per_grid_ts, tokens_per_second)" if "second_per_grid_ts" in names else ""


_replace = rewrite(
    AllAtOnce,
    clip_interval=clip_interval,
    positions_with_pictures=positions_with_pictures,
    ranked_positions=ranked_positions,
)


PATCHES = (
    construct_patch(
        name="positions of texts with pictures",
        marker=r"itertools\.groupby\(enumerate\(input_token_type\.tolist\(\)",
        mentions=("itertools.groupby(enumerate(input_token_type.tolist()",),
        replace=_replace,
        reason="the walk from picture to picture needs the tokens, and fixes the number of texts",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
