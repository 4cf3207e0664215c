"""Attention to the best blocks of past tokens: chosen for the rows of a batch at once, one token after the other.

Which tokens a block has depends on which of them a token may see: the models go from row to row and from token to
token in Python, which fixes how many there are of both.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import torch
from torch.nn.functional import pad

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite

_FIRST = "selected_token_indices = torch.full("


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


class OneTokenAtATime(ast.NodeTransformer):
    """What follows the tokens that are visible becomes one call."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        texts = [ast.unparse(statement) for statement in node.body]
        first = next((place for place, text in enumerate(texts) if text.startswith(_FIRST)), None)
        if first is None:
            return node
        parts = "(q, raw_keys, full_cos, full_sin)"
        call = f"return chosen_tokens(self, visible_token_indices, {parts}, apply_rotary_pos_emb)"
        node.body = [*node.body[:first], placed(ast.parse(call).body[0], node.body[first])]
        return ast.fix_missing_locations(node)


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
