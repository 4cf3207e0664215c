"""Attention over pictures packed into one sequence: a call for each of them becomes one with a mask.

The lengths of the pictures are data: `torch.split` by them fixes every one of them, and how many there are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.errors import RewriteError
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer


def packed_mask(lengths: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The mask, (1, 1, tokens, tokens), that lets each token see those of its own part; `lengths` are the parts'."""
    ends = lengths.cumsum(0)
    places = torch.arange(query.shape[2], device=query.device)
    part = (places[:, None] >= ends[None, :]).sum(-1)
    hidden = part[:, None] != part[None, :]
    return torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, torch.finfo(query.dtype).min)[None, None]


_SPLITS = Template("$splits = [torch.split(tensor, $lengths.tolist(), dim=2) for tensor in $states]")
_WHOLE = Template("$splits = [(tensor,) for tensor in $states]")
_PARTS = Template("zip(*$splits)")
_MASK = Template("packed_mask($lengths, $query)")


class OneMaskedCall(Transformer):
    """Tensors that are split by the lengths of pictures stay whole, the call that gets each part takes a mask.

    A whole tensor where a part is meant would give other numbers: who else reads the parts is refused.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for splits in _SPLITS.within(node):
            whole = _Whole(splits)
            whole.visit(node)
            if whole.masked_loops == 0 or whole.masked_loops != _reads(node, splits.text("splits")):
                raise RewriteError(f"the parts in {splits.text('splits')} go where no mask tells them apart")
        return node


def _reads(tree: ast.AST, name: str) -> int:
    """How often a variable is read."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return sum(node.id == name for node in names)


class _Whole(Transformer):
    """The same for one list of split tensors."""

    def __init__(self, splits: Match) -> None:
        self._splits = splits
        self.masked_loops = 0

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        found = _SPLITS.match(node)
        return node if found is None else _WHOLE.statements(found, node)[0]

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        for part in node.generators:
            self._mask_calls(part.iter, part.target, [node.elt])
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        self._mask_calls(node.iter, node.target, node.body)
        return node

    def _mask_calls(self, over: ast.expr, each: ast.expr, body: Sequence[ast.AST]) -> None:
        """Of the calls in a loop that get the parts of all states, if that is what it goes over."""
        found = _PARTS.match(over)
        if found is None or found.joined(self._splits) is None or not isinstance(each, ast.Tuple):
            return
        parts = [ast.unparse(part) for part in each.elts]
        calls = [node for tree in body for node in ast.walk(tree) if isinstance(node, ast.Call)]
        takers = [call for call in calls if [ast.unparse(part) for part in _among(parts, call)] == parts]
        self.masked_loops += len(takers) > 0
        for call in takers:
            of_query = Match({"lengths": self._splits.holes["lengths"], "query": _among(parts, call)[0]})
            _pass_mask(call, _MASK.filled(of_query, call)[0])


def _among(parts: Sequence[str], call: ast.Call) -> list[ast.expr]:
    return [argument for argument in call.args if ast.unparse(argument) in parts]


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
        marker=r"torch\.split\([^)]*\.tolist\(\), dim=2\)",
        mentions=(".tolist(), dim=2)",),
        has=lambda definition: bool(_SPLITS.within(definition)),
        replace=_replace,
        reason="the lengths of the pictures are data, and splitting by them fixes their number",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
