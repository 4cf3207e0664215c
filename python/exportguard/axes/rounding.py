"""How finely each output of a program is computed: a wide dtype tells nothing where what it was made of was rounded.

Models of half precision return some outputs in float32: logits that were cast, states that are kept wide. Two right
runs differ there by what the halves before them were rounded by.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node


def coarsest_dtypes(program: ExportedProgram) -> list[torch.dtype | None]:
    """For each output that the model returns the coarsest dtype of floats among what is computed on the way to it.

    Weights and inputs do not count, which both sides take as they are. None where no floats are computed.
    """
    *_, end = program.graph_module.graph.nodes
    coarsest = _coarsest_by_node(program.graph_module)
    pairs = zip(program.graph_signature.output_specs, end.args[0], strict=True)
    return [
        coarsest.get(value) if isinstance(value, Node) else None
        for spec, value in pairs
        if spec.kind == OutputKind.USER_OUTPUT
    ]


def coarser(one: torch.dtype | None, other: torch.dtype | None) -> torch.dtype | None:
    """The one with the larger epsilon.

    >>> coarser(torch.float32, torch.bfloat16)
    torch.bfloat16
    """
    return _coarsest((one, other))


def _coarsest_by_node(module: GraphModule) -> dict[Node, torch.dtype | None]:
    found: dict[Node, torch.dtype | None] = {}
    for node in module.graph.nodes:
        before = (found.get(value) for value in node.all_input_nodes)
        found[node] = _coarsest((*before, *_own(module, node)))
    return found


def _own(module: GraphModule, node: Node) -> Iterable[torch.dtype | None]:
    """What a node computes; of a graph that lies in this one, everything in it."""
    if node.op == "get_attr":
        owned = getattr(module, str(node.target), None)
        return _coarsest_by_node(owned).values() if isinstance(owned, GraphModule) else ()
    if node.op != "call_function":
        return ()
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else [values]
    return (value.dtype for value in tensors if isinstance(value, torch.Tensor))


def _coarsest(dtypes: Iterable[torch.dtype | None]) -> torch.dtype | None:
    floats = (dtype for dtype in dtypes if dtype is not None and (dtype.is_floating_point or dtype.is_complex))
    return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)
