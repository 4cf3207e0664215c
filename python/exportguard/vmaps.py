"""Programs with `torch.vmap`: torch.export keeps its levels as calls, with the operators of one slice between."""

from __future__ import annotations

import logging

import torch
from torch.export import ExportedProgram

logger = logging.getLogger(__name__)

# torch 2.11 to 2.13: the functions that a pre-dispatch trace records for the levels of vmap.
_LEVELS = "torch._functorch.predispatch"


def without_vmaps(program: ExportedProgram) -> ExportedProgram:
    """The program with every operator on whole batches: torch traces it again if it has a vmap, else it is the same.

    Composed operators stay as they are; writes become functional, as torch.export writes them in its signature.
    """
    if not any(map(_has_levels, _graphs(program))):
        return program
    logger.info("the program has a vmap in it, which torch takes out")
    decomposed: ExportedProgram = program.run_decompositions({})  # which has no types
    return decomposed


def _graphs(program: ExportedProgram) -> list[torch.fx.Graph]:
    modules = program.graph_module.modules()
    return [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]


def _has_levels(graph: torch.fx.Graph) -> bool:
    calls = (node for node in graph.nodes if node.op == "call_function")
    return any(getattr(node.target, "__module__", None) == _LEVELS for node in calls)
