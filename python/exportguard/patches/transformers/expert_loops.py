"""Mixtures of experts: a loop over the experts that some token chose becomes one over all of them.

Which experts are chosen depends on the data, how many there are does not. An expert without tokens adds nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Template
from exportguard.source.walking import Transformer


class Position(list[int]):
    """A row of `nonzero` of a vector whose number is known; as an index it keeps an axis of one, as the row does."""

    def item(self) -> int:
        """The number, as a tensor gives it."""
        return self[0]


def every_position(flags: torch.Tensor, has_none: bool) -> Any:
    """Each row that `flags.nonzero()` can have; with `has_none` the last flag stands for no expert at all."""
    if flags.dim() != 1 or not isinstance(flags.shape[0], int):
        return flags.nonzero()
    return [Position([number]) for number in range(flags.shape[0] - has_none)]


_ONE_MORE = Template("$experts + 1")
_SKIPS = (
    Template("if $tokens.numel() == 0:\n    continue"),
    Template("if $tokens.shape[0] == 0:\n    continue"),
)


class EveryExpert(Transformer):
    """`hit = x.nonzero()` before `for expert in hit:` becomes `hit = every_position(x)`; the loop skips nothing."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for loop in _loops(node):
            self._rewrite(node, loop)
        return ast.fix_missing_locations(node)

    def _rewrite(self, function: ast.FunctionDef, loop: ast.For) -> None:
        for assignment in _of_what_was_found(function):
            flags = _flags(assignment.value)
            if flags is not None and _names(assignment.targets[0]) & _names(loop.iter):
                has_none = any(_is_one_more(node) for node in ast.walk(function))
                every = ast.Call(ast.Name("every_position", ast.Load()), [flags, ast.Constant(has_none)], [])
                assignment.value = ast.copy_location(every, assignment.value)
                loop.body = [statement for statement in loop.body if not _skips_nothing(statement)]


def _loops(function: ast.FunctionDef) -> Iterator[ast.For]:
    return (node for node in ast.walk(function) if isinstance(node, ast.For) and isinstance(node.iter, ast.Name))


def _is_one_more(node: ast.AST) -> bool:
    """`one_hot(..., num_classes=experts + 1)`: a token without an expert has the number after the last."""
    return isinstance(node, ast.keyword) and node.arg == "num_classes" and _ONE_MORE.match(node.value) is not None


def _skips_nothing(statement: ast.stmt) -> bool:
    """`if x.numel() == 0: continue`: without it nothing is added, and no branch on the data is left."""
    return any(skip.match(statement) is not None for skip in _SKIPS)


def _flags(node: ast.AST) -> ast.expr | None:
    """What the call of `nonzero` is about; None if it is no such call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "nonzero":
        return node.func.value
    return None


def _of_what_was_found(function: ast.FunctionDef) -> list[ast.Assign]:
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    return [node for node in nodes if any(_flags(part) is not None for part in ast.walk(node.value))]


def _names(node: ast.AST) -> set[str]:
    return {node.id} if isinstance(node, ast.Name) else set()


def _has_loop(function: ast.FunctionDef) -> bool:
    """Whether it goes over what `nonzero` found, in whatever way."""
    found = {name for node in _of_what_was_found(function) for name in _names(node.targets[0])}
    over = [node.iter for node in ast.walk(function) if isinstance(node, ast.For | ast.comprehension)]
    return any(_names(node) & found or any(_flags(part) is not None for part in ast.walk(node)) for node in over)


_replace = rewrite(EveryExpert, every_position=every_position)


PATCHES = (
    construct_patch(
        name="loops over the experts that were hit",
        marker=r"\.nonzero\(",
        mentions=(".nonzero(",),
        replace=_replace,
        has=_has_loop,
        reason="how many experts are hit depends on the data, and torch.export cannot iterate over them",
        upstream="https://github.com/huggingface/transformers/issues/38518",
    ),
)
