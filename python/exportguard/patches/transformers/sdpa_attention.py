"""Whether attention is causal: the length of the query is asked last, as it may be data."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict
from exportguard.declaration.targets import resolve, resolve_object
from exportguard.source.editing import rewrite
from exportguard.source.templates import Template
from exportguard.source.walking import Transformer

if TYPE_CHECKING:
    from exportguard._core import Changes

_MODULE = "transformers.integrations.sdpa_attention"
_TARGET = f"{_MODULE}.sdpa_attention_forward"
_KINDS = "transformers.modeling_utils.AttentionInterface"


_LENGTH = Template("$length > 1")


class LengthLast(Transformer):
    """`n > 1 and a and b` becomes `bool(a and b and n > 1)`."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.And) or not _is_length(node.values[0]):
            return node
        ordered = ast.BoolOp(node.op, [*node.values[1:], node.values[0]])
        call = ast.Call(ast.Name("bool", ast.Load()), [ordered], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


def _is_length(node: ast.expr) -> bool:
    return _LENGTH.match(node) is not None


_replace = rewrite(LengthLast)


def _apply(changes: Changes) -> list[Replacement]:
    target = resolve(_TARGET)
    function = _replace(target.function)
    replacement = Replacement(_TARGET, target, function)
    replacement.put(changes)
    for name, kind in list(resolve_object(_KINDS)._global_mapping.items()):
        if kind is target.function:
            changes.set_item(resolve_object(_KINDS)._global_mapping, name, function)
    return [replacement]


def _probe() -> Verdict:
    _replace(resolve(_TARGET).function)
    return NEEDED


PATCHES = (
    Patch(
        name="causal attention of a symbolic length",
        kind="transformers",
        target=_TARGET,
        reason="the test of the query's length stops the export where the length is data, even if there is a mask",
        upstream="https://github.com/huggingface/transformers/pull/46196",
        versions="transformers>=4.57",
        awaits="transformers.modeling_utils",
        probe=_probe,
        apply=_apply,
    ),
)
