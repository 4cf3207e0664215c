"""Regions of an exported program that are within `torch.autocast`, and whether their dtypes are what they compute.

A region is a call of `wrap_with_autocast`; what autocast converts leaves no node, and is read off the dtypes that the
trace has recorded. A trace with `strict=True` (torch 2.11 to 2.13) records them as they are without autocast.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .errors import REFUSALS, ProgramError

logger = logging.getLogger(__name__)

_SOME = 2  # entries, where the trace has no example of a size


def require_recorded_dtypes(program: ExportedProgram) -> None:
    """Raises ProgramError for a region whose operators compute another dtype than was recorded, with the line.

    And for one that torch has made no region of, as where a branch lies within it.
    """
    for owner in program.graph_module.modules():
        if isinstance(owner, GraphModule):
            for region in _regions(owner):
                _require_recorded(owner, region)
            for node in owner.graph.find_nodes(op="call_function", target=torch.amp.autocast_mode._enter_autocast):
                raise ProgramError(
                    "torch.export makes no region of a torch.autocast that has torch.cond or a loop in it; write it "
                    f"within the branches, or around what has none\n{node.meta.get('stack_trace') or ''}".rstrip()
                )


def _regions(owner: GraphModule) -> Iterator[Node]:
    """Calls of wrap_with_autocast(device_type, dtype, enabled, cache_enabled, body, *operands)."""
    for node in owner.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "wrap_with_autocast" and node.args[2]:
            yield node


def _require_recorded(owner: GraphModule, region: Node) -> None:
    device, dtype, _, _, body, *operands = region.args
    module = getattr(owner, str(body.target), None) if isinstance(body, Node) else None
    if not isinstance(module, GraphModule):
        return
    examples = [operand.meta.get("val") if isinstance(operand, Node) else operand for operand in operands]
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())  # which makes sizes of data
    with mode, torch.no_grad():
        given = [_like(example) for example in examples]
        with torch.autocast(str(device), dtype=dtype):  # type: ignore[arg-type]
            comparing = _Comparing(module)
            comparing.extra_traceback = False  # the line of the model is told below
            try:
                comparing.run(*given)
            except ProgramError:
                raise
            except REFUSALS as error:
                logger.warning("what a region of torch.autocast computes in could not be looked at: %s", error)


def _like(example: Any) -> Any:
    """A tensor of the sizes of the example that was traced."""
    if not isinstance(example, torch.Tensor):
        return example
    return torch.empty([_hint(size) for size in example.shape], dtype=example.dtype, device=example.device)


def _hint(size: Any) -> int:
    hint = size if isinstance(size, int) else size.node._hint
    return hint if isinstance(hint, int) else _SOME


class _Comparing(Interpreter):
    """Runs a region, and compares dtypes operator by operator."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        recorded = n.meta.get("val")
        if not isinstance(result, FakeTensor) or not isinstance(recorded, torch.Tensor):
            return result
        if result.dtype != recorded.dtype:
            raise ProgramError(
                f"within torch.autocast {n.target} computes {result.dtype}; the program has {recorded.dtype} for it, "
                "as torch.export records it with strict=True; export with strict=False\n"
                f"{n.meta.get('stack_trace') or ''}".rstrip()
            )
        return result
