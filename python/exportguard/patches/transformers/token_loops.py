"""Recurrences: a Python loop over tokens, or over blocks of them, becomes one scan for any number of them."""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import re
import types
from typing import TYPE_CHECKING, Any

from exportguard.declaration.constructs import construct_patch
from exportguard.declaration.patch import Patch
from exportguard.patches.transformers.forward_substitution import SolveAtOnce
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.in_place import in_place
from exportguard.rewrites.rules import all_rules
from exportguard.rewrites.transform import transform_function
from exportguard.source.editing import sources_of
from exportguard.source.errors import RewriteError

if TYPE_CHECKING:
    from exportguard._core import Changes

logger = logging.getLogger(__name__)

_COUNT = (
    r"(seq_len|seq_length|sequence_length|num_chunks|total_sequence_length // chunk_size|hidden_states\.shape\[1\])"
)
_MARKER = rf"for \w+ in range\((0, )?{_COUNT}\):"


class OneRow(ast.NodeTransformer):
    """`x[:, i : i + 1]` becomes `x[:, i + torch.arange(1)]`: within a scan `i` is no number."""

    def __init__(self, index: str) -> None:
        self._index = index

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        bounds = [ast.unparse(bound) if bound is not None else "" for bound in (node.lower, node.upper, node.step)]
        if bounds != [self._index, f"{self._index} + 1", ""]:
            return node
        return ast.copy_location(ast.parse(f"{self._index} + torch.arange(1)", mode="eval").body, node)


def _is_over_tokens(node: ast.AST) -> bool:
    return isinstance(node, ast.For) and re.match(_MARKER, f"for i in {ast.unparse(node.iter)}:") is not None


def one_row_at_a_time(unit: Unit) -> None:
    """The rule that lets the body of such a loop read one row by its number."""
    for loop in ast.walk(unit.node):
        if isinstance(loop, ast.For) and _is_over_tokens(loop) and isinstance(loop.target, ast.Name):
            loop.body = [OneRow(loop.target.id).visit(statement) for statement in loop.body]
            ast.fix_missing_locations(loop)


def solve_at_once(unit: Unit) -> None:
    """The rule for the loops within a block of tokens."""
    unit.node = SolveAtOnce().visit(unit.node)


@functools.cache
def _scanning(function: types.FunctionType) -> Patch | None:
    """The patch that lets the function scan; None if the loop is not one that can."""
    try:
        rules = [solve_at_once, one_row_at_a_time, *all_rules()]
        return in_place([function], transform_function(function, rules=rules, filter_node=_is_over_tokens))
    except RewriteError as error:
        logger.info("%s keeps its loop: %s", function.__qualname__, error)
        return None


def _install(changes: Changes, owner: Any, name: str) -> None:
    function = inspect.unwrap(vars(owner)[name])
    patch = None if sources_of(function) else _scanning(function)  # another patch may have taken the loop away
    if patch is not None:
        patch.install(changes)


PATCHES = (
    construct_patch(
        name="loops over tokens",
        marker=_MARKER,
        mentions=(" in range(",),
        install=_install,
        reason="the loop is unrolled, which fixes the number of tokens",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
