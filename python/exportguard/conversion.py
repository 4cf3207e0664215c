"""From torch's operators to those of ONNX, in C++."""

from __future__ import annotations

from . import _core, decompose
from .decompose import chosen_decompositions
from .onnx_model import OnnxModel
from .optimization import Optimize, OptimizeOptions, Target, optimized
from .phases import phase, recorded_phases
from .reading import ReadProgram
from .request import ExportOptions


def convert(read: ReadProgram, *, opset: int, options: ExportOptions, optimize: Optimize = True) -> OnnxModel:
    """The model that a graph becomes, which is changed in place; nothing is traced again.

    Raises:
        LoweringError: with every operator that has no lowering, where it is, and how often.
    """
    graph, chosen, report = read.graph, chosen_decompositions(options.decompositions), None
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
                target: Target = optimize if isinstance(optimize, str) else "portable"
                report = optimized(graph, OptimizeOptions(target=target, are_types_inferred=True))
        _core.widen_bfloat16(graph, options.target)
        _core.split_factors(graph, options.target)
        if read.functions:
            _core.outline_modules(graph, read.functions)
    model = OnnxModel(graph, opset, read.axes, read.rewriting_steps, report)
    model.seconds = {**read.seconds, **seconds}
    return model
