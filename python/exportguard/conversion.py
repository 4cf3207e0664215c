"""From torch's operators to those of ONNX, in C++."""

from __future__ import annotations

from . import _core, decompose
from .decompose import chosen_decompositions
from .onnx_model import OnnxModel
from .optimization import Optimize
from .phases import phase, recorded_phases
from .reading import ReadProgram
from .request import ExportOptions


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
            _core.refuse_other_sizes(graph, read.checks)
    model.seconds = {**read.seconds, **seconds}
    return model
