"""Bodies of control flow are traced as what is around them: with the lines of the model, and with sizes as indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.patches.torch.repeated_blocks import EXPORTER

_TARGET = "torch._higher_order_ops.utils._maybe_run_with_interpreter"


def with_interpreter(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What runs a body while it is traced.

    A graph runs node by node, so that what is known of a node goes to those it makes; code of the model under the mode
    of torch.export that takes sizes as indices, which torch 2.11 to 2.13 leave where they call the operator.
    """

    # Not at the top: whoever exports control flow has them by now.
    from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler
    from torch.fx import traceback

    def run_with_interpreter(fn: object) -> Any:
        if not isinstance(fn, torch.fx.GraphModule):
            called = original(fn)

            def code(*args: Any) -> Any:
                with _NonStrictTorchFunctionHandler():
                    return called(*args)

            return code

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
        reason="nodes of a branch or loop do not say which line they come from, and an index there must be no size",
        upstream="https://github.com/pytorch/pytorch/pull/135159",
        probe=_probe,
        replace=with_interpreter,
    ),
)
