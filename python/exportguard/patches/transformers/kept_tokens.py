"""Masks that keep the best tokens where there are more than so many: `if n > count: best = topk(mask, count)`.

The test is decided for the traced length. The best of as many as there are, at most so many, are all where there are
no more: then the mask stays as it is.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer

_TEST = Template("$mask.shape[-1] > $count")
_BEST = Template("torch.topk($mask, $count, ...)")
_LEAST = Template("at_most($count, $mask.shape[-1])")
_MIN: Any = torch.sym_min


class KeepAtMost(Transformer):
    """The body without its test, and `at_most(count, n)` in the place of `count` for `topk` of the mask."""

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        found = None if node.orelse else _TEST.match(node.test)
        if found is None:
            return node
        nodes = (inner for statement in node.body for inner in ast.walk(statement))
        calls = [inner for inner in nodes if isinstance(inner, ast.Call) and _is_of_best(inner, found)]
        for call in calls:
            call.args[1] = _LEAST.filled(found, call.args[1])[0]
        return node.body if len(calls) == 1 else node


def _is_of_best(call: ast.Call, found: Match) -> bool:
    best = _BEST.match(call)
    return best is not None and len(call.args) == 2 and found.joined(best) is not None


PATCHES = (
    construct_patch(
        name="the best tokens of a mask",
        marker=r"^\s+if \w+\.shape\[-1\] > keep_window_size:",
        mentions=("> keep_window_size:",),
        replace=rewrite(KeepAtMost, at_most=_MIN),
        reason="whether some tokens are left out is decided for the traced length, and the program leaves out none",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
