"""Programs without the levels of `torch.vmap`, of which an exported program has calls, with the operators of one slice
between."""

from __future__ import annotations

import logging

import sympy
import torch
from torch.export import ExportedProgram

from exportguard.errors import REFUSALS, ExportError
from exportguard.repeats.markers import expand as expand_markers
from exportguard.signature import TracedInputs

from .traced_program import traced_inputs

logger = logging.getLogger(__name__)

# torch 2.11 to 2.13: the functions that a pre-dispatch trace records for the levels of vmap.
_LEVELS = "torch._functorch.predispatch"


def without_vmaps(program: ExportedProgram) -> ExportedProgram:
    """The same with every operator on whole batches: a program that has a vmap in it, torch traces again.

    Composed operators stay as they are; writes become functional, as torch.export writes them in its signature.

    Raises:
        ExportError: the other trace asks for sizes that the first one left open.
    """
    modules = (module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    if not any(_has_levels(module.graph) for module in modules):
        return program
    logger.info("the program has a vmap in it, which torch takes out")
    expand_markers(program.graph_module)
    before = traced_inputs(program)
    sizes = _sizes(before)
    try:
        decomposed: ExportedProgram = program.run_decompositions({})  # which has no types
    except REFUSALS as error:
        reason = str(error).partition("\n")[0]
        raise ExportError(_STOPS.format(f"stops: {type(error).__name__}: {reason}")) from error
    for axis, size in _sizes(before).items():
        if size != sizes[axis]:
            raise ExportError(_STOPS.format(f"makes {size} of the size {sizes[axis]} of an input"))
    return decomposed


_STOPS = (
    "torch takes the vmap out of the program in a second trace, and that one {}\n"
    "What to do: pass the module and not what torch.export made of it, whose second trace is not guarded; or write the "
    "function for whole batches, without torch.vmap"
)


def _sizes(inputs: TracedInputs) -> dict[tuple[int, int], sympy.Expr]:
    """The size of each axis of an input, as far as it is known by now."""
    env = inputs.shape_env
    return {
        (number, axis): size if env is None else env.replace(size)
        for number, leaf in enumerate(inputs.sizes)
        for axis, size in enumerate(leaf or ())
    }


def _has_levels(graph: torch.fx.Graph) -> bool:
    calls = (node for node in graph.nodes if node.op == "call_function")
    return any(getattr(node.target, "__module__", None) == _LEVELS for node in calls)
