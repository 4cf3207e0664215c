"""Features of pictures, one tensor for each, that a model only joins again: they stay one tensor.

`torch.split` by sizes that are data, and `list` of a tensor, fix how many pictures there are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Template, exchange
from exportguard.source.walking import Transformer


def numbers_of(sizes: torch.Tensor) -> Any:
    """`sizes.tolist()`; while a model is exported the tensor itself."""
    return sizes if torch.compiler.is_exporting() else sizes.tolist()


def parts_of(tensor: torch.Tensor, sizes: Any, dim: int = 0) -> Sequence[torch.Tensor]:
    """`torch.split`; a single part for sizes that are not known."""
    return (tensor,) if isinstance(sizes, torch.Tensor) else torch.split(tensor, sizes, dim)


def squeezed_to_split(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.squeeze(0)` of what is split into as many rows as it has; while a model is exported rows stay rows.

    A single row would be squeezed, and `torch.split` refuses what is left, whose entries are more than one.
    """
    is_of_rows = tensor.dim() == 2 and isinstance(tensor.shape[1], int) and tensor.shape[1] > 1
    return tensor if torch.compiler.is_exporting() and is_of_rows else tensor.squeeze(0)


def rows_of(tensor: Any) -> list[Any]:
    """`list(tensor)`; while a model is exported a single part that has all rows behind each other."""
    if isinstance(tensor, torch.Tensor) and torch.compiler.is_exporting():
        return [tensor.flatten(0, 1)]
    return list(tensor)


#: Numbers, splits by them and lists of rows that are taken from a tensor while it is exported.
Joined = exchange(
    "Joined",
    (
        "[$number for height, width in $sizes]",
        "numbers_of((lambda height, width: $number)(*$sizes.unbind(-1)))",
    ),
    ("torch.split($states.squeeze(0), $sizes)", "parts_of(squeezed_to_split($states), $sizes)"),
    ("torch.split($states, $sizes, dim=$axis)", "parts_of($states, $sizes, dim=$axis)"),
    ("torch.split($states, $sizes, $axis)", "parts_of($states, $sizes, $axis)"),
    ("torch.split($states, $sizes)", "parts_of($states, $sizes)"),
    ("$states.split($sizes, dim=$axis)", "parts_of($states, $sizes, dim=$axis)"),
    ("$states.split($sizes)", "parts_of($states, $sizes)"),
    ("list(image_features)", "rows_of(image_features)"),
    ("$sizes.tolist()", "numbers_of($sizes)"),
)

_SIZE = Template("$held.numel()")


class Unchecked(Transformer):
    """A test of numbers of elements that only raises goes: whether a text has a place for each feature is for eager
    mode to say."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        comparisons = [part for part in ast.walk(node.test) if isinstance(part, ast.Compare)]
        sizes = [part for part in comparisons if isinstance(part.ops[0], ast.NotEq) and _SIZE.within(part)]
        is_check = bool(sizes) and not node.orelse and isinstance(node.body[0], ast.Raise)
        return ast.copy_location(ast.Pass(), node) if is_check else node


_replace_checks = rewrite(Unchecked)
_replace = rewrite(
    Joined, numbers_of=numbers_of, parts_of=parts_of, rows_of=rows_of, squeezed_to_split=squeezed_to_split
)


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
