"""Nodes in the bodies of control flow keep the lines of the model that they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.patches.torch.repeated_blocks import EXPORTER

_TARGET = "torch._higher_order_ops.utils._maybe_run_with_interpreter"


def with_interpreter(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What runs a body while it is traced: node by node, so that what is known of a node goes to those it makes."""

    # Not at the top: whoever exports control flow has them by now.
    from torch.fx import traceback

    def run_with_interpreter(fn: object) -> Any:
        if not isinstance(fn, torch.fx.GraphModule):
            return original(fn)

        def body(*args: Any) -> Any:
            with traceback.preserve_node_meta():
                return torch.fx.Interpreter(fn).run(*args)

        return body

    return run_with_interpreter


def _probe() -> Verdict:
    from torch._higher_order_ops.utils import _maybe_run_with_interpreter

    body = torch.fx.GraphModule({}, torch.fx.Graph())
    is_run_as_it_is = _maybe_run_with_interpreter(body) is body  # type: ignore[no-untyped-call]
    return NEEDED if is_run_as_it_is else not_needed("bodies are run node by node")


PATCHES = (
    Patch(
        name="lines of bodies",
        kind="torch",
        target=_TARGET,
        awaits=EXPORTER,
        reason="a node in a branch or a loop does not say which line of the model it comes from",
        upstream="https://github.com/pytorch/pytorch/pull/135159",
        probe=_probe,
        replace=with_interpreter,
    ),
)
