"""Features of pictures, one tensor for each, that a model only joins again: they stay one tensor.

`torch.split` by sizes that are data, and `list` of a tensor, fix how many pictures there are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite


def numbers_of(sizes: torch.Tensor) -> Any:
    """`sizes.tolist()`; while a model is exported the tensor itself."""
    return sizes if torch.compiler.is_exporting() else sizes.tolist()


def parts_of(tensor: torch.Tensor, sizes: Any, dim: int = 0) -> Sequence[torch.Tensor]:
    """`torch.split`; a single part for sizes that are not known."""
    return (tensor,) if isinstance(sizes, torch.Tensor) else torch.split(tensor, sizes, dim)


def rows_of(tensor: Any) -> list[Any]:
    """`list(tensor)`; while a model is exported a single part that has all rows behind each other."""
    if isinstance(tensor, torch.Tensor) and torch.compiler.is_exporting():
        return [tensor.flatten(0, 1)]
    return list(tensor)


class Joined(ast.NodeTransformer):
    """Numbers, splits by them and lists of rows that are taken from a tensor while it is exported."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A number for each height and width becomes one expression for all of them."""
        self.generic_visit(node)
        if ast.unparse(node.generators[0]).strip() != "for height, width in image_sizes":
            return node
        call = f"numbers_of((lambda height, width: {ast.unparse(node.elt)})(*image_sizes.unbind(-1)))"
        return placed(ast.parse(call, mode="eval").body, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if ast.unparse(function) == "torch.split":
            return _call("parts_of", node, node.args)
        if ast.unparse(node) == "list(image_features)":
            return _call("rows_of", node, node.args)
        if isinstance(function, ast.Attribute) and function.attr == "tolist":
            return _call("numbers_of", node, [function.value])
        if isinstance(function, ast.Attribute) and function.attr == "split":
            return _call("parts_of", node, [function.value, *node.args])
        return node


def _call(name: str, like: ast.Call, arguments: list[ast.expr]) -> ast.AST:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, like.keywords), like)


class Unchecked(ast.NodeTransformer):
    """`if …numel() != …: raise` goes: whether a text has a place for each feature is for eager mode to say."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        self.generic_visit(node)
        test = ast.unparse(node.test)
        is_check = ".numel() != " in test and not node.orelse and isinstance(node.body[0], ast.Raise)
        return ast.copy_location(ast.Pass(), node) if is_check else node


_replace_checks = rewrite(Unchecked)
_replace = rewrite(Joined, numbers_of=numbers_of, parts_of=parts_of, rows_of=rows_of)


PATCHES = (
    construct_patch(
        name="checks of the places of pictures",
        marker=r"\.numel\(\) != ",
        mentions=(".numel() != ",),
        replace=_replace_checks,
        named=lambda name: name == "get_placeholder_mask",
        reason="the number of places that a text has for pictures is data",
        upstream="https://github.com/pytorch/pytorch/issues/147096",
    ),
    construct_patch(
        name="features of several pictures",
        marker=r"\.tolist\(\)|list\(image_features\)|for height, width in image_sizes",
        mentions=(".tolist()", "list(image_features)", "for height, width in image_sizes"),
        replace=_replace,
        named=lambda name: name.startswith("get_") and name.endswith("_features"),
        reason="the number of pictures becomes a constant where their features are taken apart",
        upstream="https://github.com/huggingface/transformers/pull/42822",
    ),
)
