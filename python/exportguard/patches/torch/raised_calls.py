"""Calls of modules that raise what the model catches, `try: x = layer(x, lengths) except TypeError: x = layer(x)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_TARGET = "torch.fx._symbolic_trace.Tracer.call_module"


def leaving_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    """The tracer's call of a module: it notes which modules it is in, and the end of a call only where that returns."""

    @functools.wraps(original)
    def call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
        stack = self.module_stack
        depth = len(stack)
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            while len(stack) > depth:
                stack.popitem(last=True)
            raise

    return call_module


PATCHES = (
    Patch(
        name="calls that raise",
        kind="torch",
        target=_TARGET,
        reason="a module whose call raised is never left, and the next one that returns finds it on the stack",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/_symbolic_trace.py",
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="self, m, forward, args, kwargs",
                has=("self.module_stack[$key]", "self.module_stack.popitem(last=True)"),
            )
        ),
        replace=leaving_modules,
    ),
)
