"""Patches of a picture that no word of its text covers, moved to the front: for all pictures at once, at full length.

The models take them picture by picture, which fixes how many pictures there are and needs to know which patches it is.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite

#: A one for each patch, in the words of transformers 5 and 4.
_ONES = ("[torch.ones(item.size(0), ", "[torch.tensor([1] * len(item))")


class Chosen(NamedTuple):
    """Rows of values, and which of them count."""

    values: torch.Tensor
    which: torch.Tensor


def ones_of(chosen: Chosen, dtype: torch.dtype) -> Chosen:
    """A one for each that counts."""
    return Chosen(torch.ones_like(chosen.which, dtype=dtype), chosen.which)


def in_front(chosen: Chosen, length: Any) -> torch.Tensor:
    """Those that count in their order, with zeros behind them up to `length`."""
    values, which = chosen
    missing: Any = length - which.shape[1]
    if missing > 0:
        behind = [0, 0] * (values.dim() - 2) + [0, missing]
        values, which = torch.nn.functional.pad(values, behind), torch.nn.functional.pad(which, (0, missing))
    order = (~which).long().sort(dim=1, stable=True).indices[:, :length]
    counts = which.long().sum(1, keepdim=True)
    places = torch.arange(order.shape[1], device=order.device)
    moved = values[torch.arange(order.shape[0], device=order.device)[:, None], order]
    keeps = (places < counts).view(*order.shape, *[1] * (values.dim() - 2))
    return torch.where(keeps, moved, 0)


class AllPictures(ast.NodeTransformer):
    """Lists with an entry for each picture become two tensors, and what is made of them one."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node)
        if text == "zip(*ind)":
            return _expression("ind.unbind(-1)", node)
        if text == "len(ocr_points)":
            return _expression("ocr_points.shape[0]", node)
        if text.startswith("torch.stack([pad_sequence(") and isinstance(node.args[0], ast.ListComp):
            return _expression(f"in_front({ast.unparse(node.args[0].generators[0].iter)}, max_len)", node)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        text = ast.unparse(node)
        if text.endswith("[i][patch_inds[i]] for i in range(len(patch_inds))]"):
            return _expression(f"Chosen({text.removeprefix('[').partition('[i]')[0]}, patch_inds)", node)
        if text.startswith(_ONES):
            return _expression(f"ones_of({ast.unparse(node.generators[0].iter)}, attention_mask.dtype)", node)
        return node


def _expression(text: str, like: ast.AST) -> ast.expr:
    return placed(ast.parse(text, mode="eval").body, like)


_replace = rewrite(AllPictures, Chosen=Chosen, in_front=in_front, ones_of=ones_of)


PATCHES = (
    construct_patch(
        name="patches that no word covers",
        marker=r"rows, cols = zip\(\*ind\)",
        mentions=("rows, cols = zip(*ind)",),
        replace=_replace,
        reason="the lists with an entry for each picture fix how many there are, and need to know which patches it is",
        upstream="https://github.com/pytorch/pytorch/issues/147096",
    ),
)
