"""From torch's operators to those of ONNX, in C++."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import torch

from . import _core, decompose
from .axes.bound import Answer
from .axes.rounding import agree
from .decompose import chosen_decompositions
from .errors import ExportGuardError
from .onnx_model import OnnxModel
from .optimization import Optimize
from .phases import phase, recorded_phases
from .reading import ReadProgram
from .request import ExportOptions
from .runners.evaluator import EvaluatorSession
from .size_checks import size_checks

logger = logging.getLogger(__name__)


def convert(read: ReadProgram, *, opset: int, options: ExportOptions, optimize: Optimize = True) -> OnnxModel:
    """The model that a graph becomes, which is changed in place; nothing is traced again.

    Raises:
        LoweringError: with every operator that has no lowering, where it is, and how often.
    """
    graph, chosen = read.graph, chosen_decompositions(options.decompositions)
    model = OnnxModel(graph, opset, read.axes, read.rewriting_steps)
    with recorded_phases() as seconds:
        with phase("converting"):
            _core.convert(
                graph,
                opset=opset,
                trace=decompose.tracer(chosen),
                outputs=None if options.mutated_outputs else read.returned,
                target=options.target,
                fused_attention=optimize is not False,
                converters=options.dispatcher.rows() if options.dispatcher is not None else {},
                decompositions=list(chosen),
            )
        if optimize:
            with phase("optimizing"):
                model.optimize(
                    target=optimize if isinstance(optimize, str) else "portable", positions=options.positions
                )
        _core.widen_bfloat16(graph, options.target)
        _core.keep_factors(graph, options.target)
        _core.keep_apart(graph, options.target)
        _core.keep_empty_products(graph, options.target)
        if read.functions:
            _core.outline_modules(graph, read.functions)
        if options.check_sizes:
            checks = size_checks(read.limits, read.inputs, _Answering(graph, read.inputs).has)
            _core.refuse_other_sizes(graph, checks, read.axis_names)
    model.seconds = {**read.seconds, **seconds}
    return model


class _Answering:
    """A graph as it is now, run by itself: a model keeps its sessions, and the graph is changed behind this."""

    def __init__(self, graph: _core.Model, names: Sequence[str]) -> None:
        """`names` are those of all leaves of the inputs."""
        self._graph, self._names = graph, names

    @functools.cached_property
    def _session(self) -> EvaluatorSession:
        return EvaluatorSession(self._graph)

    def has(self, answer: Answer) -> bool:
        """Whether it returns what the model does."""
        leaves = dict(zip(self._names, answer.inputs, strict=True))
        expected = [leaf for leaf in answer.outputs if leaf is not None]
        try:
            got = self._session.run({name: torch.as_tensor(leaves[name]) for name in self._session.input_names})
        except ExportGuardError as error:
            logger.info("the file stops where the model takes a single entry: %s", error)
            return False
        return agree(expected, got[: len(expected)])
