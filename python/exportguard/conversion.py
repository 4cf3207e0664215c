"""From torch's operators to those of ONNX, in C++."""

from __future__ import annotations

import logging

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
            checks = size_checks(read.limits, read.inputs, lambda answer: _has_answer(model, answer, read))
            _core.refuse_other_sizes(graph, checks)
    model.seconds = {**read.seconds, **seconds}
    return model


def _has_answer(model: OnnxModel, answer: Answer, read: ReadProgram) -> bool:
    """Whether the file returns what the model does."""
    leaves = dict(zip(read.inputs, answer.inputs, strict=True))
    feeds = {value.name: torch.as_tensor(leaves[value.name]) for value in model.inputs if value.name in leaves}
    try:
        got = model.run(feeds, runner="evaluator")
    except ExportGuardError as error:
        logger.info("the file stops where the model takes a single entry: %s", error)
        return False
    expected = [leaf for leaf in answer.outputs if leaf is not None]
    return agree(expected, [*got.values()][: len(expected)])
