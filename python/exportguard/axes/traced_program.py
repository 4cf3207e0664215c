"""An exported program as it was traced: what it takes, the calls in it, and what they return, run without ONNX.

A wide dtype tells nothing of an output where what it was made of was rounded. Models of half precision return some in
float32: logits that were cast, states that are kept wide. Two right runs differ there by what the halves before them
were rounded by.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from exportguard.inputs import CallInputs
from exportguard.repeats.markers import MARKER
from exportguard.repeats.markers import expand as expand_markers
from exportguard.rewrites.written import UndoneWrites, may_write
from exportguard.signature import TracedInputs, raw_size

from . import bodies
from .evaluation import Evaluation
from .expressions import Sizes
from .left_behind import Places, Written
from .rounding import coarsest
from .true_shapes import Blocks, GraphWithTrueShapes, TracedSizes, markers, path_of

logger = logging.getLogger(__name__)


class TracedProgram:
    """A program that is read once, and run at one size after the other; blocks that were replayed stay markers."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._blocks = Blocks()
        self._evaluations: dict[Any, Evaluation] = {}
        #: What the last run left in the inputs and buffers that it wrote into.
        self.written: Written = {}

    @functools.cached_property
    def inputs(self) -> TracedInputs:
        """The inputs as they were traced."""
        return traced_inputs(self._program)

    @functools.cached_property
    def _writes(self) -> UndoneWrites:
        calls = (node for node in self.nodes if node.op == "call_function" and node.target is not MARKER)
        return UndoneWrites(may_write=any(map(may_write, calls)))

    @functools.cached_property
    def nodes(self) -> Sequence[Node]:
        """Every node, those in branches, loops and the blocks that were replayed among them, each once."""
        waiting = [module.graph for module in self._graph_modules()]
        met: dict[Graph, None] = {}
        while waiting:
            graph = waiting.pop()
            if graph not in met:
                met[graph] = None
                waiting += [path_of(marker).graph for marker in markers(graph)]
        return [node for graph in met for node in graph.nodes]

    def calls_of(self, *targets: Any) -> Iterator[Node]:
        """The nodes that call one of these."""
        return (node for node in self.nodes if node.op == "call_function" and node.target in targets)

    @functools.cached_property
    def branches(self) -> Sequence[Node]:
        """The nodes that test data: branches, and loops that data end."""
        return [*self.calls_of(bodies.BRANCH, bodies.WHILE)]

    @functools.cached_property
    def number_of_calls(self) -> int:
        """How many calls there are, those of blocks as often as they stand there."""
        calls = (node for module in self._graph_modules() for node in module.graph.nodes if node.op == "call_function")
        return sum(len(path_of(node).graph.nodes) if node.target is MARKER else 1 for node in calls)

    @functools.cached_property
    def computed_in(self) -> Sequence[torch.dtype | None]:
        """For each output that the model returns the coarsest dtype of floats among what is computed on the way to it.

        Weights and inputs do not count, which both sides take as they are. None where no floats are computed.
        """
        *_, end = self._program.graph.nodes
        coarsest = _coarsest_by_node(self._program.graph_module)
        pairs = zip(self._program.graph_signature.output_specs, end.args[0], strict=True)
        return [
            coarsest.get(value) if isinstance(value, Node) else None
            for spec, value in pairs
            if spec.kind == OutputKind.USER_OUTPUT
        ]

    def run(
        self,
        call: CallInputs,
        sizes: Sizes,
        graph: type[GraphWithTrueShapes] | None = None,
        *,
        course: bodies.Course | None = None,
    ) -> list[Any]:
        """The outputs, without the checks of its sizes; buffers and weights that it writes into are then as before.

        `graph` runs it, and says which shapes are true: all of them by default. `course` says how it goes.

        Raises:
            OtherShapeError: a tensor within it has another shape than the trace says.
            ManyStepsError: its loops go through more steps than its course has.
        """
        signature, module = self._program.graph_signature, self._program.graph_module
        leaves = iter([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in call.leaves()])
        values = [
            next(leaves) if spec.kind == InputKind.USER_INPUT else self._own_value(spec)
            for spec in signature.input_specs
        ]

        if any(markers(inner.graph) for inner in self._graph_modules() if inner is not module):
            expand_markers(module)  # torch runs the graphs that lie in a graph
        traced_sizes = TracedSizes(sizes, self._evaluations)
        runner = (graph or GraphWithTrueShapes)(module, traced_sizes, self._blocks.of_another_run(course))
        # torch 2.11 to 2.13 print the line of a graph within a graph that raises; here that is an answer.
        with contextlib.redirect_stderr(io.StringIO()), self._writes.call():
            places = _places(signature, values)
            results = [self._writes.left(result) for result in runner.run(*values)]
            self.written = places.written({})
        pairs = zip(signature.output_specs, results, strict=True)
        return [value for spec, value in pairs if spec.kind == OutputKind.USER_OUTPUT]

    def _graph_modules(self) -> list[GraphModule]:
        return [module for module in self._program.graph_module.modules() if isinstance(module, GraphModule)]

    def _own_value(self, spec: Any) -> Any:
        state, constants = self._program.state_dict, self._program.constants
        value = state[spec.target] if spec.target in state else constants.get(spec.target)
        is_written = spec.kind == InputKind.BUFFER and isinstance(value, torch.Tensor)
        return value.detach().clone() if is_written and isinstance(value, torch.Tensor) else value


def _places(signature: ExportGraphSignature, values: Sequence[Any]) -> Places:
    pairs = [(spec, value) for spec, value in zip(signature.input_specs, values, strict=True)]
    buffers = {spec.target: value for spec, value in pairs if spec.kind == InputKind.BUFFER and spec.target is not None}
    return Places(buffers, [value for spec, value in pairs if spec.kind == InputKind.USER_INPUT])


def traced_inputs(program: ExportedProgram) -> TracedInputs:
    """The inputs of a program as they were traced."""
    values: Mapping[str, Any] = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    leaves = [values.get(spec.arg.name) for spec in specs]

    modes = (leaf.fake_mode for leaf in leaves if isinstance(leaf, torch.Tensor) and hasattr(leaf, "fake_mode"))
    mode = next(modes, None)
    return TracedInputs(
        leaves=leaves,
        sizes=[_raw_sizes(leaf) for leaf in leaves],
        shape_env=mode.shape_env if mode is not None else None,
        ranges=program.range_constraints,
        taken=[not isinstance(spec.arg, ConstantArgument) for spec in specs],
    )


def _raw_sizes(leaf: object) -> list[sympy.Expr]:
    if isinstance(leaf, torch.Tensor):
        return [raw_size(size) for size in leaf.shape]
    return [raw_size(leaf)] if isinstance(leaf, int | torch.SymInt) else []


def _coarsest_by_node(module: GraphModule) -> dict[Node, torch.dtype | None]:
    found: dict[Node, torch.dtype | None] = {}
    for node in module.graph.nodes:
        before = (found.get(value) for value in node.all_input_nodes)
        found[node] = coarsest((*before, *_computed_by(module, node)))
    return found


def _computed_by(module: GraphModule, node: Node) -> Iterable[torch.dtype | None]:
    """What a node computes; of a graph that lies in this one, everything in it."""
    if node.op == "get_attr":
        owned = getattr(module, str(node.target), None)
        return _coarsest_by_node(owned).values() if isinstance(owned, GraphModule) else ()
    if node.op != "call_function":
        return ()
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else [values]
    return (value.dtype for value in tensors if isinstance(value, torch.Tensor))
