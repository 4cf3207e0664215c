"""Positions of texts with pictures in them, on three axes: computed for all tokens at once.

The models walk from picture to picture in Python, which needs the tokens themselves. What a token gets follows from
sums over the tokens before it: a token of text moves on by one, a picture as a whole by its longer side.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.picture_grids import plainly
from exportguard.source.editing import rewrite
from exportguard.source.errors import RewriteError
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

_PLACES = Template("found = $places($next, $grid, ...)")
_BY_LONGER_SIDE = Template("next += max($grid[1], $grid[2]) // $side")
_BEHIND_THE_LAST = Template("next = $found.max().item() + 1")

_ALL = Template(
    "return positions_with_pictures($kinds, $mask, {1: $pictures, 2: $clips}, Walk($places, $side, $behind))"
)
_ALL_TIMED = Template(
    "return positions_with_pictures($kinds, $mask, {1: $pictures, 2: $clips}, "
    "Walk($places, $side, $behind, clip_interval($seconds, $rate)))"
)
_ALL_RANKED = Template("return ranked_positions($kinds, $mask, $pictures, $axes, $ranks, $side)")


@dataclass(frozen=True)
class Walk:
    """How the model walks over a picture.

    `places` is its own method: the positions of a picture's tokens, from where it begins, its frames, rows and columns
    of patches, the sides of a block in frames and patches, and for clips how many positions apart their frames are.
    What follows a picture is behind its longer side, or behind its last position.
    """

    places: Callable[..., torch.Tensor]
    merge: int
    is_behind_last: bool
    interval: Any = None


def positions_with_pictures(
    kinds: torch.Tensor, mask: torch.Tensor | None, grids: dict[int, torch.Tensor | None], walk: Walk
) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions, (3, batch, tokens), and how far each row's next one is from its number of tokens.

    `kinds` tells text from pictures and clips, `mask` which tokens count, `grids` the sizes of the pictures of each
    kind.

    Raises:
        RewriteError: the model places the tokens of a picture in a way that is not known.
    """
    has_ends = _has_ends_of_rows(walk)
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
        blocks = grid[number] // _sides(walk.merge, grid)
        interval = _of_each(walk.interval if kind == _CLIP else None, number)
        places = _in_pictures(blocks, offset, interval, has_ends)
        behind = _behind(blocks, interval, has_ends) if walk.is_behind_last else blocks[..., 1:].amax(-1)
        inside, advance = torch.where(is_kind, places, inside), torch.where(is_kind, behind, advance)
    moves = torch.where(counted & (starts | (kinds == 0)), advance, 0).cumsum(1)
    positions = torch.where(counted, moves - advance + inside, 0)
    return positions, positions.amax((0, 2))[:, None] + 1 - counted.long().sum(1, keepdim=True)


def _numbers(starts: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """The row in `grid` of the picture that began last, over all texts; any row before the first."""
    number = starts.flatten().long().cumsum(0).view(starts.shape) - 1
    return number.clamp(min=0).minimum(torch.full_like(number, grid.shape[0]) - 1)


def _sides(merge: int, grid: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1, merge, merge], device=grid.device)


def _in_pictures(grid: torch.Tensor, offset: torch.Tensor, interval: Any, has_ends: bool) -> torch.Tensor:
    """The positions on three axes of each token in its picture of blocks: (3, ...).

    They are its frame, row and column. Where each row has a token of its own at its end, a frame begins on all axes
    behind what the one before it has.
    """
    _, height, width = grid.unbind(-1)
    across = width + has_ends
    frame, row, column = offset // (height * across), offset // across % height, offset % across
    if not has_ends:
        return torch.stack([(frame * interval).long(), row, column])
    begin = frame * torch.maximum(height, across)
    return torch.stack([begin, row + begin, column + begin])


def _behind(grid: torch.Tensor, interval: Any, has_ends: bool) -> torch.Tensor:
    """The first position behind all that a picture has."""
    frames, height, width = grid.unbind(-1)
    if has_ends:
        return frames * torch.maximum(height, width + 1)
    return torch.maximum(((frames - 1) * interval).long() + 1, torch.maximum(height, width))


def _of_each(interval: Any, number: torch.Tensor) -> Any:
    if interval is None:
        return 1
    return interval[number] if isinstance(interval, torch.Tensor) and interval.dim() else interval


_SIZES = [torch.tensor(size) for size in itertools.product((1, 3), (1, 2, 4), (1, 3))]  # in blocks


def _has_ends_of_rows(walk: Walk) -> bool:
    """Whether each row has a token of its own at its end, seen from what the model's method gives for some sizes.

    Raises:
        RewriteError: it gives something else.
    """
    apart = (1,) if walk.interval is None else (1, 2)
    cases = list(itertools.product(_SIZES, (0, 5), apart))
    with plainly():
        given = [
            walk.places(start, size * _sides(walk.merge, size), 1, walk.merge, *[interval][: len(apart) - 1])
            for size, start, interval in cases
        ]
        for has_ends in (False, True):
            known = [_all_of_one(size, interval, has_ends) + start for size, start, interval in cases]
            if all(map(torch.equal, given, known)):
                return has_ends
    raise _unknown(walk.places)


def _all_of_one(size: torch.Tensor, interval: int, has_ends: bool) -> torch.Tensor:
    frames, height, width = size.tolist()
    return _in_pictures(size, torch.arange(frames * height * (width + has_ends)), interval, has_ends)


def _unknown(method: object) -> RewriteError:
    name = getattr(method, "__qualname__", "the method that does it")
    return RewriteError(
        f"the positions of a picture's tokens are only computed for all pictures at once where they are known, and "
        f"{name} gives others. Compute the positions before, and convert the model with position_ids as an input"
    )


def clip_interval(seconds: Any, rate: Any) -> Any:
    """How many positions the frames of each clip are apart, from the seconds between them."""
    return rate if seconds is None else rate * torch.as_tensor(seconds)


def _kind_before(kinds: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The kind of the last token before each that counts; -1 where there is none."""
    places = torch.where(counted, torch.arange(kinds.shape[1], device=kinds.device), -1).cummax(1).values
    before = torch.nn.functional.pad(places[:, :-1], (1, 0), value=-1)
    return torch.where(before < 0, -1, kinds.gather(1, before.clamp(min=0)))


def ranked_positions(
    kinds: torch.Tensor,
    mask: torch.Tensor | None,
    grid: torch.Tensor | None,
    axes: int,
    ranks: Callable[..., torch.Tensor],
    merge: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions, (axes, batch, tokens), that are a token's rank in its text, whatever pictures stand before it.

    The last three axes of a picture's tokens are their column, their row, and the picture's number. A picture may have
    a token that begins it and one that ends it, and each of its rows has one at its end. `ranks` is the model's own
    method, which gives columns and rows.

    Raises:
        RewriteError: it gives something else.
    """
    _require_columns_and_rows(ranks, merge)
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


def _require_columns_and_rows(ranks: Callable[..., torch.Tensor], merge: int) -> None:
    with plainly():
        for _, height, width in (size.tolist() for size in _SIZES):
            place = torch.arange(height * (width + 1))
            given = ranks(torch.tensor([height, width]) * merge, spatial_merge_size=merge)
            if not torch.equal(given, torch.stack([place % (width + 1), place // (width + 1)])):
                raise _unknown(ranks)


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
    steps = _steps(rest, sides[-1].names["side"]) if sides else []
    match = known.joined(grids[0]) if grids and len(steps) == 1 else None
    if match is None:
        return None
    places, is_behind_last = steps[0]
    match.holes |= {
        "side": _variable(sides[-1], "side"),
        "places": places,
        "behind": ast.Constant(is_behind_last),
    }
    seconds, rates = _SECONDS.within(*rest), _RATE.within(*before, *rest)
    if not seconds and not rates:
        return _ALL.statements(match, like)
    if not seconds or not rates:
        return None
    match.holes |= {"seconds": seconds[0].holes["seconds"], "rate": _variable(rates[-1], "rate")}
    return _ALL_TIMED.statements(match, like)


def _steps(walk: list[ast.stmt], side: str) -> list[tuple[ast.expr, bool]]:
    """The methods that place a picture where the walk is, and whether it goes on behind the last of their positions."""
    found = []
    for places in _PLACES.within(*walk):
        here = [places.text(name) for name in ("next", "grid")]
        longer = (
            [step.names["next"], step.text("grid")] == here
            for step in _BY_LONGER_SIDE.within(*walk)
            if step.text("side") == side
        )
        last = (
            [step.names["next"], step.text("found")] == [here[0], places.names["found"]]
            for step in _BEHIND_THE_LAST.within(*walk)
        )
        if (is_longer := any(longer)) or any(last):
            found.append((places.holes["places"], not is_longer))
    return found


def _all_ranked(known: Match, before: list[ast.stmt], rest: list[ast.stmt], like: ast.stmt) -> list[ast.stmt] | None:
    """Where each axis has a rank of its own: a picture takes as many places as it has tokens."""
    grid = _GRID.match(rest[0])
    sides, axes = _RANKED_SIDES.within(*rest), _AXES.within(*before)
    match = known.joined(grid) if grid is not None and sides and axes else None
    if match is None:
        return None
    match.holes |= {"side": sides[0].holes["side"], "ranks": sides[0].holes["ranks"], "axes": axes[0].holes["axes"]}
    return _ALL_RANKED.statements(match, like)


def _variable(match: Match, name: str) -> ast.expr:
    return ast.Name(match.names[name], ast.Load())


_replace = rewrite(
    AllAtOnce,
    Walk=Walk,
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
