"""The node that stands for a replayed block in a traced graph, and its expansion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from exportguard.repeats.paths import Path, Place, stamp

# It is said to write its tensors, so that no pass takes it for dead: blocks may but fill a cache. Of an operator whose
# inputs may not be laid out anew, torch's tracer keeps a copy of the examples of all inputs, which nobody reads here.
_LIBRARY: Any = torch.library.Library("exportguard_repeats", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("block(Tensor(a!)[] tensors, SymInt[] sizes) -> Tensor[]", tags=(torch.Tag.flexible_layout,))

#: The operator of a marker. Its `meta` has the path that the block took, as "exportguard_path".
MARKER = torch.ops.exportguard_repeats.block.default


def add_marker(tracer: Any, path: Path, nodes: Mapping[int, Node]) -> Node:
    """A node for a block that took a path; `nodes` has the path's operands by their number."""
    for local in () if path.examples else path.locals:
        path.examples[local.number] = nodes[local.number].meta.get("val")
    shared = [value.node for value in path.shared]
    split = len(shared) - path.size_count
    tensors = [*(nodes[local.number] for local in path.locals), *shared[:split]]
    node: Node = tracer.create_node("call_function", MARKER, (tensors, shared[split:]), {})

    # Passes of torch walk over it; a block has as many values as are asked for.
    node.meta["val"] = ()
    node.meta["exportguard_path"] = path
    return node


def expand(module: torch.nn.Module) -> int:
    """Puts the operators in the place of the markers of a graph module and of those inside it; returns how many."""
    graphs = [part.graph for part in module.modules() if isinstance(part, GraphModule)]
    count = sum(expand_graph(graph) for graph in graphs)
    if count:
        for part in module.modules():
            if isinstance(part, GraphModule):
                part.recompile()
    return count


def expand_graph(graph: Graph) -> int:
    """Puts the operators in the place of the markers of a graph; returns how many there were."""
    markers = graph.find_nodes(op="call_function", target=MARKER)
    for marker in markers:
        _expand_marker(graph, marker)
    return len(markers)


def _expand_marker(graph: Graph, marker: Node) -> None:
    path: Path = marker.meta["exportguard_path"]
    tensors, sizes = marker.args
    given: Any = [*tensors, *sizes]  # type: ignore[misc]
    nodes = {local.number: node for local, node in zip(path.locals, given, strict=False)}
    shared = {value.node: node for value, node in zip(path.shared, given[len(path.locals) :], strict=True)}
    place = Place(marker.meta.get("nn_module_stack", {}))
    items = {item.args[1]: item for item in list(marker.users)}

    with graph.inserting_before(marker):
        stamp(path.steps, nodes, shared, graph, place)

    for number, item in items.items():
        node, name = nodes[number], item.name  # type: ignore[index]
        item.replace_all_uses_with(node)
        graph.erase_node(item)
        node.name = name
    graph.erase_node(marker)
