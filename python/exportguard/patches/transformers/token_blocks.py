"""Attention to the best blocks of past tokens: chosen for the rows of a batch at once, one token after the other.

Which tokens a block has depends on which of them a token may see: the models go from row to row and from token to
token in Python, which fixes how many there are of both.
"""

from __future__ import annotations

import ast
import itertools
import math
from typing import Any

import torch
from torch.nn.functional import pad

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer


def chosen_tokens(indexer: Any, visible: torch.Tensor, parts: tuple[Any, ...], rotate: Any) -> torch.Tensor:
    """The mask, (batch, 1, tokens, past), of the tokens that each attends to; `visible` are those that it may see.

    `parts` are the queries, (batch, tokens, heads, width), all keys, (batch, past, width), and cosines and sines.
    """
    from torch._higher_order_ops.map import map as for_each

    query, *of_past = parts

    def choose(row: Any, *past: Any) -> torch.Tensor:
        return _chosen(indexer, row, past, rotate)

    by_token = for_each(choose, (visible[:, 0].transpose(0, 1), query.transpose(0, 1)), *of_past)
    return by_token.transpose(0, 1)[:, None]  # type: ignore[no-any-return]


def _chosen(indexer: Any, token: tuple[torch.Tensor, torch.Tensor], past: Any, rotate: Any) -> torch.Tensor:
    """For one token of each row: the tokens of its best blocks, and those behind its last whole block."""
    visible, query = token
    size: int = indexer.compress_ratio
    rank = visible.long().cumsum(-1) - 1
    whole = visible.long().sum(-1, keepdim=True) // size
    scores: torch.Tensor = _scores(indexer, query, _in_order(visible, rank, size), past, rotate)
    is_whole = torch.arange(scores.shape[1], device=scores.device) < whole
    scores = scores.masked_fill(~is_whole, -torch.inf)
    places = scores.sort(-1, descending=True).indices.sort(-1).indices
    most: int = indexer.block_topk
    is_best = (places < most) & is_whole
    return visible & (is_best.gather(1, rank.clamp(min=0) // size) | (rank >= whole * size))


def _in_order(visible: torch.Tensor, rank: torch.Tensor, size: int) -> torch.Tensor:
    """The places of the visible tokens in blocks, (batch, blocks, size); any place where there are no more of them."""
    length: Any = visible.shape[1]
    room = (length + size - 1) // size * size
    places = torch.arange(length, device=visible.device).expand_as(rank)
    order = pad(torch.zeros_like(rank), (0, room + 1 - length))
    return order.scatter(1, torch.where(visible, rank, room), places)[:, :-1].unflatten(1, (-1, size))  # type: ignore[no-untyped-call, no-any-return]


def _scores(indexer: Any, query: torch.Tensor, blocks: torch.Tensor, past: Any, rotate: Any) -> torch.Tensor:
    keys, cos, sin = past
    row = torch.arange(blocks.shape[0], device=blocks.device)[:, None]
    pooled = keys[row[..., None], blocks].float().mean(2).to(keys.dtype)
    first = blocks[:, :, 0]
    pooled = indexer.k_layernorm(pooled)[:, :, None]
    rotated = rotate(pooled, cos=cos[row, first], sin=sin[row, first], unsqueeze_dim=2).squeeze(2)
    products: torch.Tensor = query.float() @ rotated.float().transpose(-1, -2)
    width: int = indexer.index_head_dim
    return torch.relu(products).sum(1) / math.sqrt(width)


_BEGINS = Template("$chosen = torch.full($shape, -1, dtype=torch.int32, device=$device)")
_CHOICE = (
    Template("torch.nonzero($visible[$row, 0, $token], as_tuple=False).flatten()"),
    Template("$keys[$row].index_select(0, $blocks.flatten())"),
    Template("$rotate($pooled.unsqueeze(1), cos=$cos[$row].index_select(0, $at), sin=$sin[$row].index_select(0, $at))"),
    Template("torch.matmul($query[$row, $token].float(), $rotated.float().transpose(-1, -2))"),
)
_AT_ONCE = Template("return chosen_tokens(self, $visible, ($query, $keys, $cos, $sin), $rotate)")


class OneTokenAtATime(Transformer):
    """What follows the tokens that are visible becomes one call."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for place, (first, loop) in enumerate(itertools.pairwise(node.body)):
            found = _choice_in(loop) if isinstance(loop, ast.For) and _BEGINS.match(first) is not None else None
            if found is not None:
                node.body = [*node.body[:place], *_AT_ONCE.statements(found, first)]
        return node


def _choice_in(loop: ast.For) -> Match | None:
    """What the loop chooses of; None if it does something else."""
    known = Match()
    for template in _CHOICE:
        both = (known.joined(found) for found in template.within(loop))
        joined = next((match for match in both if match is not None), None)
        if joined is None:
            return None
        known = joined
    return known


_replace = rewrite(OneTokenAtATime, chosen_tokens=chosen_tokens)


PATCHES = (
    construct_patch(
        name="blocks of visible tokens",
        marker=r"num_complete_blocks = local_visible_indices\.",
        mentions=("num_complete_blocks = local_visible_indices.",),
        replace=_replace,
        reason="the loops over texts and tokens fix how many there are, and need to know which of them are visible",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
