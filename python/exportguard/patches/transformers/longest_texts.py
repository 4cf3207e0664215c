"""Cuts under a test of sizes, as `if ids.shape[1] > longest: ids = ids[:, :longest]`, for texts of any length.

The test is decided for the traced length, and the program cuts all texts or none. `ids[:, :min(n, longest)]` of an axis
of `n` entries cuts those that are longer and keeps the others. Other variables that are cut in the same branch may have
axes of other lengths, which the model leaves alone where the tested one is short: they are cut without the test only
where their axis is the tested one, by the symbols of the trace.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite
from exportguard.source.reading import copied
from exportguard.source.templates import Template
from exportguard.source.walking import Transformer

_TEST = Template("$x.shape[$axis] > $longest")
_min: Any = torch.sym_min


def are_one_size(tested: object, *others: object) -> bool:
    """Whether a symbolic size is the only one among these, so that a test of it is one of each."""
    if not isinstance(tested, torch.SymInt):
        return False
    expression = tested.node.expr
    return all(isinstance(other, torch.SymInt) and other.node.expr == expression for other in others)


class CutAtMost(Transformer):
    """In front of `if n > longest: x = x[:, :longest]` stands the same cut by `min(n, longest)`, for open sizes."""

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        found = None if node.orelse else _TEST.match(node.test)
        if found is None:
            return node
        longest, tested = found.text("longest"), f"{found.text('x')}.shape[{found.text('axis')}]"
        sizes = [_cut_sizes(statement, longest) for statement in node.body]
        if not all(sizes):
            return node
        flat = list(dict.fromkeys(size for of_one in sizes for size in of_one))
        test = ast.parse(f"are_one_size({', '.join([tested, *flat])})", mode="eval").body
        always = ast.If(
            placed(test, node.test), [_by_least(copied(statement), longest) for statement in node.body], [node]
        )
        return ast.fix_missing_locations(ast.copy_location(always, node))


def _cut_sizes(statement: ast.stmt, longest: str) -> list[str]:
    """The sizes of the axes that the statement cuts to the longest, if it does nothing else to its variable."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return []
    value, target = statement.value, statement.targets[0]
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Subscript):
        return []
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    if ast.unparse(value.value) != target.id or not all(isinstance(part, ast.Slice) for part in parts):
        return []
    cuts = [axis for axis, part in enumerate(parts) if ast.unparse(part) != ":"]
    is_cut = all(ast.unparse(parts[axis]) == ast.unparse(_slice_to(longest)) for axis in cuts)
    return [f"{target.id}.shape[{axis}]" for axis in cuts] if is_cut else []


def _slice_to(upper: str) -> ast.Slice:
    return ast.Slice(upper=ast.parse(upper, mode="eval").body)


def _by_least(statement: Any, longest: str) -> Any:
    """The same cut by the smaller one of the size and the longest."""
    value = statement.value
    parts: list[Any] = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    for axis, part in enumerate(parts):
        if part.upper is not None:
            least = ast.parse(f"least({ast.unparse(value.value)}.shape[{axis}], {longest})", mode="eval").body
            part.upper = placed(least, part.upper)
    return statement


def _has_cut(function: ast.FunctionDef) -> bool:
    """Whether a test of a size decides about nothing but cuts to that size."""
    for node in ast.walk(function):
        found = _TEST.match(node.test) if isinstance(node, ast.If) and not node.orelse else None
        if found is not None and isinstance(node, ast.If):
            longest = found.text("longest")
            if all(_cut_sizes(statement, longest) for statement in node.body):
                return True
    return False


PATCHES = (
    construct_patch(
        name="cuts of long texts",
        marker=r"^\s+if \w+\.shape\[-?\d\] > \w+:",
        mentions=(".shape[",),
        replace=rewrite(CutAtMost, are_one_size=are_one_size, least=_min),
        has=_has_cut,
        reason="whether texts are cut is decided for the traced length, and the program cuts all of them or none",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
