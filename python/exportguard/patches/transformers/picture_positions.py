"""Positions of texts with pictures in them, on three axes: computed for all tokens at once.

The models walk from picture to picture in Python, which needs the tokens themselves. What a token gets follows from
sums over the tokens before it: a token of text moves on by one, a picture as a whole by its longer side.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer

_PICTURE, _CLIP = 1, 2  # kinds of tokens; 0 is text

# The walk over one text after the other, and what it is made of.
_WALK = Template("itertools.groupby(enumerate($own.tolist()), $key)")
_KINDS = Template("own = $kinds[$text]")
_MASK = Template("$mask[$text].bool()")
_LIST = Template("found = []")
_SIDE = Template("side = $configuration.spatial_merge_size")
_GRIDS = Template(
    "grids = {1: iter($pictures) if $pictures is not None else None, 2: iter($clips) if $clips is not None else None}"
)
_GRID = Template("grid = iter($pictures) if $pictures is not None else None")
_RANKED_SIDES = Template("$ranks($sizes[1:], spatial_merge_size=$side, device=$device)")
_AXES = Template("torch.zeros($axes, $x.shape[0], $x.shape[1], dtype=$x.dtype, device=$x.device)")
_SECONDS = Template("iter($seconds) if $seconds is not None else iter([1] * $count)")
_RATE = Template("rate = $configuration.tokens_per_second")

_ALL = Template("return positions_with_pictures($kinds, $mask, {1: $pictures, 2: $clips}, $side)")
_ALL_TIMED = Template(
    "return positions_with_pictures($kinds, $mask, {1: $pictures, 2: $clips}, $side, clip_interval($seconds, $rate))"
)
_ALL_RANKED = Template("return ranked_positions($kinds, $mask, $pictures, $axes, $side)")


def positions_with_pictures(
    kinds: torch.Tensor,
    mask: torch.Tensor | None,
    grids: dict[int, torch.Tensor | None],
    merge: int,
    interval: object = 1,
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


class AllAtOnce(Transformer):
    """What makes the positions becomes one call; what stands before it, such as other grids, stays."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        known = _kinds_and_mask(node)
        if known is None:
            return node
        for place, statement in enumerate(node.body):
            if not (_LIST.match(statement) or _GRID.match(statement)):
                continue
            before, rest = node.body[:place], node.body[place:]
            made = _all_at_once(known, before, rest, statement) or _all_ranked(known, before, rest, statement)
            if made is not None:
                node.body = [*before, *made]
                return ast.fix_missing_locations(node)
        return node


def _kinds_and_mask(function: ast.FunctionDef) -> Match | None:
    """The kinds of tokens that are walked over in one text after the other, and the mask."""
    for walk in _WALK.within(function):
        own = walk.holes["own"]
        for kinds in _KINDS.within(function):
            masks = _MASK.within(function)
            if isinstance(own, ast.Name) and kinds.names["own"] == own.id and masks:
                return kinds.joined(Match({"mask": masks[0].holes["mask"]}))
    return None


def _all_at_once(known: Match, before: list[ast.stmt], rest: list[ast.stmt], like: ast.stmt) -> list[ast.stmt] | None:
    sides, grids = _SIDE.within(*before), _GRIDS.within(*rest)
    match = known.joined(grids[0]) if sides and grids else None
    if match is None:
        return None
    match.holes["side"] = _variable(sides[-1], "side")
    seconds, rates = _SECONDS.within(*rest), _RATE.within(*before, *rest)
    if not seconds and not rates:
        return _ALL.statements(match, like)
    if not seconds or not rates:
        return None
    match.holes |= {"seconds": seconds[0].holes["seconds"], "rate": _variable(rates[-1], "rate")}
    return _ALL_TIMED.statements(match, like)


def _all_ranked(known: Match, before: list[ast.stmt], rest: list[ast.stmt], like: ast.stmt) -> list[ast.stmt] | None:
    """Where each axis has a rank of its own: a picture takes as many places as it has tokens."""
    grid = _GRID.match(rest[0])
    sides, axes = _RANKED_SIDES.within(*rest), _AXES.within(*before)
    match = known.joined(grid) if grid is not None and sides and axes else None
    if match is None:
        return None
    match.holes |= {"side": sides[0].holes["side"], "axes": axes[0].holes["axes"]}
    return _ALL_RANKED.statements(match, like)


def _variable(match: Match, name: str) -> ast.expr:
    return ast.Name(match.names[name], ast.Load())


_replace = rewrite(
    AllAtOnce,
    clip_interval=clip_interval,
    positions_with_pictures=positions_with_pictures,
    ranked_positions=ranked_positions,
)


PATCHES = (
    construct_patch(
        name="positions of texts with pictures",
        marker=r"itertools\.groupby\(",
        mentions=("itertools.groupby(",),
        has=lambda function: bool(_WALK.within(function)),
        replace=_replace,
        reason="the walk from picture to picture needs the tokens, and fixes the number of texts",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
