"""What operators of sizes give, remembered: a trace asks for the same few over and over.

The memory layout of each tensor is worked out anew of its sizes (products for the strides, comparisons for what is
contiguous), by each operator and each check of it. What they give follows from their operands' expressions, types and
numbers in the example.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, Replacement, replaced
from exportguard.declaration.targets import resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes

_Function = Callable[..., Any]

_MODULE = "torch.fx.experimental.sym_node"
_NODE = f"{_MODULE}.SymNode"

#: How `SymNode` computes in torch 2.11 to 2.13, which what is remembered has to be the same as.
COMPUTED = Expected(
    path=f"{_MODULE}._make_node_magic",
    parameters="method, func",
    has=(
        "get_proxy_mode()",
        "self.shape_env._create_fx_call_function(op, (self.fx_node, other.fx_node))",
        'setattr(SymNode, f"_{method_attr}", binary_magic_impl)',
    ),
)

_WHOLE = frozenset({int, bool})


def remembering(original: _Function) -> _Function:
    """An operator of `SymNode` that follows from its operands alone, with its answers kept while it is installed.

    Each answer is a node of its own, since torch keeps proxies by the identity of nodes. Floats, sizes that depend on
    data, and traces that note each operation of sizes are left to torch.
    """
    node = resolve_object(_NODE)
    log = resolve_object(f"{_MODULE}.sym_node_log")
    settings = resolve_object("torch._logging._internal")
    tracing = resolve_object("torch.fx.experimental.proxy_tensor.get_proxy_mode")
    answers: dict[Any, tuple[Any, ...]] = {}

    @functools.wraps(original)
    def operation(self: Any, other: Any) -> Any:
        env, hint, other_hint = self.shape_env, self._hint, other._hint
        if (
            type(hint) not in _WHOLE
            or type(other_hint) not in _WHOLE
            or env is None
            or env._translation_validation_enabled
            or settings.GET_DTRACE_STRUCTURED
            or log.isEnabledFor(logging.DEBUG)
            or tracing() is not None
        ):
            return original(self, other)
        is_sum, other_is_sum = self._optimized_summation, other._optimized_summation
        # The types tell True from 1, which are the same key.
        key = self.expr, other.expr, hint, other_hint, self.pytype, other.pytype, is_sum, other_is_sum
        answer = answers.get(key)
        if answer is None:
            found = original(self, other)
            if type(found._hint) in _WHOLE:
                answers[key] = found._expr, found.pytype, found._hint, found._optimized_summation
            return found
        expression, kind, number, is_sum = answer
        return node(expression, env, kind, number, optimized_summation=is_sum)

    return operation


_COMPARISONS = tuple(f"{_NODE}._{name}" for name in ("eq", "ne", "ge", "gt", "le", "lt"))


def _replace_all(changes: Changes) -> list[Replacement]:
    return [replaced(changes, path, remembering) for path in _COMPARISONS]


PATCHES = (
    Patch(
        name="comparisons of sizes",
        kind="torch",
        target=_COMPARISONS,
        awaits="torch.fx.experimental.symbolic_shapes",
        reason="the same sizes are compared over and over, in arithmetic of expressions",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/sym_node.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(COMPUTED),
        apply=_replace_all,
    ),
)
