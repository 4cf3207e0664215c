"""Attention over pictures packed into one sequence: a call for each of them becomes one with a mask.

The lengths of the pictures are data: `torch.split` by them fixes every one of them, and how many there are.
"""

from __future__ import annotations

import ast

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite

_LENGTHS = "lengths.tolist()"


def packed_mask(lengths: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The mask, (1, 1, tokens, tokens), that lets each token see those of its own part; `lengths` are the parts'."""
    ends = lengths.cumsum(0)
    places = torch.arange(query.shape[2], device=query.device)
    part = (places[:, None] >= ends[None, :]).sum(-1)
    hidden = part[:, None] != part[None, :]
    return torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, torch.finfo(query.dtype).min)[None, None]


class OneMaskedCall(ast.NodeTransformer):
    """`torch.split(x, lengths.tolist(), dim=2)` becomes `(x,)`, the call for each part takes a mask."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "torch.split" and ast.unparse(node.args[1]) == _LENGTHS:
            return ast.copy_location(ast.Tuple([node.args[0]], ast.Load()), node)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        if _is_over_parts(node.generators[0].iter):
            _mask_calls(node.elt)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if _is_over_parts(node.iter):
            for statement in node.body:
                _mask_calls(statement)
        return node


def _is_over_parts(node: ast.expr) -> bool:
    return ast.unparse(node) == "zip(*splits)"


def _mask_calls(node: ast.AST) -> None:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "attention_interface":
            mask = f"packed_mask(lengths, {ast.unparse(call.args[1])})"
            _pass_mask(call, placed(ast.parse(mask, mode="eval").body, call))


def _pass_mask(call: ast.Call, mask: ast.expr) -> None:
    """By its name, or within `**kwargs` where the call leaves it to those."""
    for keyword in call.keywords:
        if keyword.arg == "attention_mask" or (keyword.arg is None and not _names_mask(call)):
            own = ast.Dict([None, ast.Constant("attention_mask")], [keyword.value, mask])
            keyword.value = mask if keyword.arg else own
    ast.fix_missing_locations(call)


def _names_mask(call: ast.Call) -> bool:
    return any(keyword.arg == "attention_mask" for keyword in call.keywords)


_replace = rewrite(OneMaskedCall, packed_mask=packed_mask)


PATCHES = (
    construct_patch(
        name="attention over packed pictures",
        marker=r"\blengths\.tolist\(\)",
        mentions=("lengths.tolist()",),
        replace=_replace,
        reason="the lengths of the pictures are data, and splitting by them fixes their number",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
