"""Recurrences: a Python loop over tokens, or over blocks of them, becomes one scan for any number of them."""

from __future__ import annotations

import ast
import re
import types

from exportguard.declaration.constructs import construct_patch
from exportguard.patches.transformers.forward_substitution import SolveAtOnce
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.in_place import in_place
from exportguard.rewrites.rules import all_rules
from exportguard.rewrites.transform import transform_function
from exportguard.source.errors import RewriteError
from exportguard.source.reading import is_same_tree, name_of
from exportguard.source.templates import Template
from exportguard.source.walking import Transformer
from exportguard.source.wrapping import innermost

#: How the models say how many tokens there are, or blocks of them.
_COUNTS = (
    "seq_len",
    "seq_length",
    "sequence_length",
    "num_chunks",
    "total_sequence_length // chunk_size",
    "hidden_states.shape[1]",
)
_OVER_TOKENS = [Template(form.format(count)) for count in _COUNTS for form in ("range({})", "range(0, {})")]
_MARKER = rf"for \w+ in range\((0, )?({'|'.join(map(re.escape, _COUNTS))})\):"


_NEXT = Template("$i + 1")
_ROW = Template("$i + torch.arange(1)")


class OneRow(Transformer):
    """`x[:, i : i + 1]` becomes `x[:, i + torch.arange(1)]`: within a scan `i` is no number."""

    def __init__(self, index: ast.expr) -> None:
        self._index = index

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        behind = _NEXT.match(node.upper) if node.upper is not None and node.step is None else None
        if behind is None or not is_same_tree(node.lower, self._index):
            return node
        return _ROW.filled(behind, node)[0] if is_same_tree(behind.holes["i"], self._index) else node


def _is_over_tokens(node: ast.AST) -> bool:
    return isinstance(node, ast.For) and any(count.match(node.iter) for count in _OVER_TOKENS)


def one_row_at_a_time(unit: Unit) -> None:
    """The rule that lets the body of such a loop read one row by its number."""
    for loop in ast.walk(unit.node):
        if isinstance(loop, ast.For) and _is_over_tokens(loop) and isinstance(loop.target, ast.Name):
            loop.body = [OneRow(loop.target).visit(statement) for statement in loop.body]
            ast.fix_missing_locations(loop)


_IS_NONE = Template("$state is None")
_DECAY_OF_BLOCK = Template("torch.exp(-self.slope_rate * $tokens)")
_DECAY_OF_TOKEN = Template("torch.exp(-self.slope_rate)")


class TokensFromTheStart(Transformer):
    """Linear attention with decay that goes by blocks where it has no state goes by tokens, as behind a state.

    Both are `state = decay * state + key^T value`, `output = query state`, for a block with the powers of the decay
    within it: a state of zeros behind which the tokens follow gives the same, for any number of them.
    """

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        first, state = node.body[0], _IS_NONE.match(node.test)
        if state is None or not isinstance(first, ast.Assign):
            return node
        begins = is_same_tree(first.targets[0], state.holes["state"])
        if not begins or not _DECAY_OF_BLOCK.within(*node.body) or not _DECAY_OF_TOKEN.within(*node.orelse):
            return node
        body = node.orelse
        node.body, node.orelse = [first], []
        return [node, *body]


def tokens_from_the_start(unit: Unit) -> None:
    """The rule for blocks of tokens that a loop over them does the same as."""
    unit.node = TokensFromTheStart().visit(unit.node)


def solve_at_once(unit: Unit) -> None:
    """The rule for the loops within a block of tokens."""
    unit.node = SolveAtOnce().visit(unit.node)


def _scanning(raw: object) -> types.FunctionType:
    """The function that scans, whose code the function itself can run: others may hold it already.

    :raises RewriteError: the loop is not one that can be a scan
    """
    function = innermost(raw)
    rules = [tokens_from_the_start, solve_at_once, one_row_at_a_time, *all_rules()]
    rewritten = transform_function(function, rules=rules, filter_node=_is_over_tokens)
    if not rewritten.is_changed:
        raise RewriteError(f"{name_of(function)} has no loop over tokens that can be a scan")
    scanning: types.FunctionType = in_place([function], rewritten).rewritten.func
    return scanning


PATCHES = (
    construct_patch(
        name="loops over tokens",
        marker=_MARKER,
        mentions=(" in range(",),
        replace=_scanning,
        in_code=True,
        reason="the loop is unrolled, which fixes the number of tokens",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
