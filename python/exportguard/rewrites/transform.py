"""Rewrites one function or method."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from dataclasses import replace

from exportguard.rewrites.engine import RewrittenMethod, Rule, Unit, rewrite_function
from exportguard.rewrites.rules import all_rules
from exportguard.source.walking import Transformer
from exportguard.source.wrapping import innermost, rewrap

#: Changes a definition before or after the rules: takes the tree of a function and returns it.
Rewriter = Callable[[ast.FunctionDef], ast.FunctionDef]


def transform_method(
    func: object,
    *,
    filter_node: Callable[[ast.AST], bool] | None = None,
    pre_rewriter: Rewriter | None = None,
    post_rewriter: Rewriter | None = None,
    absorb_rest: bool = False,
) -> RewrittenMethod:
    """The function with tests, loops and assertions on tensor data rewritten so that torch.export can trace them.

    Decorators stay in force if they keep the function in a closure, as `functools.wraps` ones do. Nothing is installed:
    `torch_export_rewrite` does that.

    :param func: a function, method, staticmethod, classmethod or property
    :param filter_node: whether an `if`, `for`, `while`, `assert` or boolean expression may be rewritten
    :param pre_rewriter, post_rewriter: change the definition before and after the rules
    :param absorb_rest: each branch takes the statements behind its test with it, which are then in the graph twice: for
        variables that no graph can hold behind the test, such as None on one path and a tensor on the other
    :raises RewriteError: there is no source, or a decorator hides the function

    >>> import torch
    >>> class Clamped(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.max() < 1 else x / x.max()
    >>> print(transform_method(Clamped.forward).applied)
    ('line 3: conditional expression',)
    """
    inner = innermost(func)
    rules = [*_changing(pre_rewriter), *all_rules(), *_changing(post_rewriter)]
    rewritten = transform_function(inner, rules=rules, filter_node=filter_node, absorb_rest=absorb_rest)
    if not rewritten.is_changed:
        return rewritten
    return replace(rewritten, original=func, func=rewrap(func, inner, rewritten.func))


def transform_function(
    function: types.FunctionType,
    *,
    rules: Sequence[Rule] | None = None,
    filter_node: Callable[[ast.AST], bool] | None = None,
    absorb_rest: bool = False,
    keep_sizes: bool = False,
    tell_nones: bool = False,
) -> RewrittenMethod:
    """`transform_method` for a plain function itself, whatever it wraps.

    :param keep_sizes: `len(x)` alone is worth a rewriting
    :param tell_nones: a variable that may be None gets another one that says so
    :raises RewriteError: there is no source
    """
    keep = filter_node or (lambda node: True)
    own = rules if rules is not None else all_rules()
    return rewrite_function(function, own, keep, absorbs=absorb_rest, keeps_sizes=keep_sizes, tells_nones=tell_nones)


def _changing(rewriter: Rewriter | None) -> list[Rule]:
    if rewriter is None:
        return []

    def rule(unit: Unit) -> None:
        before = ast.unparse(unit.node)
        unit.node = rewriter(unit.node)
        if ast.unparse(unit.node) != before:
            unit.note(unit.node, getattr(rewriter, "__name__", "rewriter"))

    return [rule]


class _IntoBitor(Transformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Or):
            return node
        joined = node.values[0]
        for value in node.values[1:]:
            joined = ast.copy_location(ast.BinOp(joined, ast.BitOr(), value), node)
        return joined


def ast_or_into_bitor(node: ast.FunctionDef) -> ast.FunctionDef:
    """A `pre_rewriter`: every `a or b` becomes `a | b`, for operands that are bool tensors.

    >>> print(ast.unparse(ast_or_into_bitor(ast.parse("def f(a, b): return a or b").body[0])))
    def f(a, b):
        return a | b
    """
    changed: ast.FunctionDef = _IntoBitor().visit(node)
    return ast.fix_missing_locations(changed)
