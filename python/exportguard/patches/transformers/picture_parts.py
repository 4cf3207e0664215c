"""Features of pictures, one tensor for each, that a model only joins again: they stay one tensor.

`torch.split` by sizes that are data, and `list` of a tensor, fix how many pictures there are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.joined_parts import is_whole, note_whole
from exportguard.source.editing import rewrite
from exportguard.source.templates import Exchange, Template, pairs_of
from exportguard.source.walking import Transformer


def numbers_of(sizes: torch.Tensor) -> Any:
    """`sizes.tolist()`; while a model is exported the tensor itself."""
    return sizes if torch.compiler.is_exporting() else sizes.tolist()


def parts_of(tensor: torch.Tensor, sizes: Any, dim: int = 0) -> Sequence[torch.Tensor]:
    """`torch.split`; a single part for sizes that are not known, which is all parts where those may be several."""
    if not isinstance(sizes, torch.Tensor):
        return torch.split(tensor, sizes, dim)
    return (tensor if _is_fixed(sizes) and len(sizes) == 1 else note_whole(tensor),)


def _is_fixed(tensor: torch.Tensor) -> bool:
    """Whether the number of rows is a constant of the program."""
    return tensor.dim() > 0 and isinstance(tensor.shape[0], int)


def squeezed_to_split(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.squeeze(0)` of what is split into as many rows as it has; while a model is exported rows stay rows.

    A single row would be squeezed, and `torch.split` refuses what is left, whose entries are more than one.
    """
    is_of_rows = tensor.dim() == 2 and isinstance(tensor.shape[1], int) and tensor.shape[1] > 1
    return tensor if torch.compiler.is_exporting() and is_of_rows else tensor.squeeze(0)


def rows_of(tensor: Any) -> list[Any]:
    """`list(tensor)`; while a model is exported a single part that has all rows behind each other, if their number
    changes."""
    if isinstance(tensor, torch.Tensor) and torch.compiler.is_exporting() and not _is_fixed(tensor):
        return [note_whole(tensor.flatten(0, 1))]
    return list(tensor)


def of_each(parts: Iterable[Any], function: Callable[[Any], Any]) -> list[Any]:
    """`[function(part) for part in parts]`; what is made of all parts in one is all of what is made of each."""
    made = []
    for part in parts:
        made.append(function(part))
        if is_whole(part) and isinstance(made[-1], torch.Tensor):
            note_whole(made[-1])
    return made


class Joined(Exchange):
    """Numbers, splits by them and lists of rows that are taken from a tensor while it is exported, and lists that are
    made of a part each."""

    pairs = pairs_of(
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

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        (parts, *others), is_of_method = node.generators, isinstance(getattr(node.elt, "func", None), ast.Attribute)
        is_split = isinstance(parts.iter, ast.Call) and ast.unparse(parts.iter.func) in ("parts_of", "rows_of")
        if others or parts.ifs or not is_of_method or not is_split or not isinstance(parts.target, ast.Name):
            return node
        given = ast.arguments(
            posonlyargs=[], args=[ast.arg(parts.target.id)], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        call = ast.Call(ast.Name("of_each", ast.Load()), [parts.iter, ast.Lambda(given, node.elt)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


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
    Joined,
    numbers_of=numbers_of,
    of_each=of_each,
    parts_of=parts_of,
    rows_of=rows_of,
    squeezed_to_split=squeezed_to_split,
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
