"""Operators that address the memory of a tensor: right only where it lies in memory in the order of its elements."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from .errors import LoweringError

_OPERATORS = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_copy.default,
    torch.ops.aten.as_strided_scatter.default,
)


def refuse_strides_of_views(program: ExportedProgram) -> None:
    """Raises for strides of a tensor that is a view of another one, as ONNX knows only the order of elements.

    Raises:
        LoweringError: with the line of the model.
    """
    graphs = (module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    for node in (node for graph in graphs for operator in _OPERATORS for node in _calls(graph, operator)):
        if not _lies_in_order(node.args[0].meta.get("val")):
            raise LoweringError(
                f"{node.target}: the strides are those of a view; call contiguous() on the tensor before\n"
                f"{node.meta.get('stack_trace', '')}"
            )


def _calls(graph: torch.fx.Graph, operator: Any) -> list[Any]:
    return list(graph.find_nodes(op="call_function", target=operator))


def _lies_in_order(value: object) -> bool:
    """Whether the strides are surely the products of the sizes behind each axis."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not isinstance(value, torch.Tensor):
        return True
    product: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not (statically_known_true(stride == product) or statically_known_true(size == 1)):
            return False
        product = product * size
    return True
