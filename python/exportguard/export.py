"""From a module or an exported program to an ONNX model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from . import _core, decompose
from .arguments import require_choice, require_kind
from .axis_report import AxisOutcome
from .decompose import Decompositions, chosen_decompositions
from .dispatcher import Dispatcher
from .dynamic_shapes import DynamicShapes, LeafShape, normalise
from .errors import AxisError, ExportError, InvalidArgumentError
from .foreign_names import takes_foreign_names
from .guard import torch_export_patches
from .inputs import ordered_call
from .memory_order import refuse_strides_of_views
from .module_functions import ModulesAsFunctions, functions_of_program
from .onnx_model import OnnxModel, first_difference, require_writable
from .opsets import checked_opset
from .optimization import Optimize, checked_optimize
from .phases import phase, recorded_phases
from .request import ExportOptions, ExportRequest
from .rewrites.automatic import loops_left
from .signature import program_names, returned_leaves
from .tracing import Exported, exported_module
from .vmaps import without_vmaps

logger = logging.getLogger(__name__)

OnFixedAxis = Literal["error", "warn"]


@takes_foreign_names
def to_onnx(
    model_or_program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: DynamicShapes = None,
    opset: int | None = None,
    on_fixed_axis: OnFixedAxis = "error",
    output: str | os.PathLike[str] | None = None,
    rewrite: object = (),
    optimize: Optimize = True,
    dispatcher: Dispatcher | None = None,
    decompositions: Decompositions = (),
    modules_as_functions: ModulesAsFunctions = (),
    options: ExportOptions = ExportOptions(),
) -> OnnxModel:
    """Converts a module, or what torch.export made of one, to ONNX, and saves it if `output` is given.

    A module is exported with `args` and `kwargs` under the guard. `dynamic_shapes` is nested like the inputs and names
    the axes that change, `{"input_ids": {0: "batch", 1: "seq"}}`: axes of one name are equal. One `{axis: name}` in the
    place of a container, a cache for example, goes to every tensor in it. For an exported program it only gives names.
    `rewrite` is that of `torch_export_patches`: with "auto", what stops the export at tensor data is rewritten.
    `dispatcher` has converters for operators of one's own, or instead of those that exist (that of `options` if None).
    `decompositions` are operators that torch takes apart although they have a lowering, or a function for each that
    does it. `modules_as_functions` are classes of modules, or "repeated" for what the model repeats, a list of layers
    for example: each becomes the call of a local function, with its weights as inputs.
    Without `opset` it is the newest that the installed onnxruntime runs.
    `optimize` fuses nodes into standard operators; "onnxruntime" takes operators of that runtime as well, False leaves
    every operator as it was lowered, which also runs with no sample and no query where attention does not.

    The model is run at sizes that the trace has assumptions about, in search of those that do not hold.

    >>> model = to_onnx(torch.nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=({0: "batch"},))
    >>> model.inputs[0].shape
    ('batch', 4)

    Raises:
        InvalidArgumentError: what is given is no module or program, or dynamic shapes or opset are wrong.
        AxisError: an axis that was asked to change does not, or not to every size that the model takes; with
            `on_fixed_axis="warn"` that is logged, and `OnnxModel.axes` has it.
        ExportError: torch.export stops; it names the line of the model and the remedy.
        FileError: `output` cannot be written; that is found out before anything else is done.
        LoweringError: with every operator that has no lowering, where it is, and how often.
    """
    opset = checked_opset(opset)
    checked_optimize(optimize)
    require_choice("on_fixed_axis", on_fixed_axis, ("error", "warn"))
    require_kind("options", options, ExportOptions, "ExportOptions(…)")
    path = require_writable(output, "output") if output is not None else None
    if dispatcher is not None:
        require_kind("dispatcher", dispatcher, Dispatcher, "Dispatcher({…})")
        options = replace(options, dispatcher=dispatcher)
    if decompositions:
        options = replace(options, decompositions=decompositions)
    if modules_as_functions:
        options = replace(options, modules_as_functions=modules_as_functions)

    def export(options: ExportOptions) -> Exported:
        if isinstance(model_or_program, ExportedProgram):
            return Exported(model_or_program, _shapes_of_program(model_or_program, dynamic_shapes))
        return export_program(
            model_or_program, args, kwargs, dynamic_shapes=dynamic_shapes, rewrite=rewrite, options=options
        )

    exported = export(options)
    require_kept(exported.axes(), on_fixed_axis, loops_left(exported.program))
    model = convert(exported, opset=opset, options=options, optimize=optimize)
    if options.repeats == "verify":
        traced_all = export(replace(options, repeats="trace all"))
        require_same(model, convert(traced_all, opset=opset, options=options, optimize=optimize))
    if path is not None:
        model.save(path, external_data=options.external_data)
    return model


def require_same(model: OnnxModel, traced_all: OnnxModel) -> None:
    """Raises ExportError, naming the first difference, unless both compute every output by the same expression."""
    difference = first_difference(model, traced_all)
    if difference:
        raise ExportError(
            f"tracing what repeats once gives another model than tracing everything: {difference}; "
            'pass repeats="trace all", and report it with the model'
        )


def export_program(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    dynamic_shapes: DynamicShapes,
    options: ExportOptions,
    rewrite: object = (),
) -> Exported:
    """torch.export under the guard; `rewrite` is that of `torch_export_patches`."""
    return exported_module(
        ExportRequest.of(model, args, kwargs, dynamic_shapes=dynamic_shapes, options=options, rewrite=rewrite)
    )


def require_kept(axes: Sequence[AxisOutcome], on_fixed_axis: OnFixedAxis, reasons: Sequence[str] = ()) -> None:
    """Raises, or logs, if an axis was asked to change and does not, or not to every size that the model takes.

    `reasons` tell why loops that fixed one could not be rewritten.

    Raises:
        AxisError: with the line of the model and the remedy for each of them.
    """
    lost = [axis for axis in axes if not axis.kept and not (axis.is_optional and axis.is_constant)]
    if not lost:
        return
    listed = "\n".join([*(f"  {axis}" for axis in lost), *(f"  {reason}" for reason in reasons)])
    text = f"of the axes that were asked to change, {len(lost)} do not, or not to every size:\n{listed}\n{_REMEDY}"
    if on_fixed_axis == "error":
        raise AxisError(f'{text}, or pass on_fixed_axis="warn"')
    logger.warning("%s", text)


_REMEDY = (
    "What to do: write that line so that it holds for any size, leave the axis out of dynamic_shapes, or ask for the "
    "sizes that come, with torch.export.Dim(name, min=…, max=…)"
)


def convert(exported: Exported, *, opset: int, options: ExportOptions, optimize: Optimize = True) -> OnnxModel:
    """The conversion alone, in C++, without a second trace."""
    program, shapes = exported.program, exported.shapes
    with recorded_phases() as seconds:
        with phase("reading the program"):
            core = imported(program, shapes, options)
        model = _converted(core, exported, opset=opset, options=options, optimize=optimize)
    model.seconds = {**exported.seconds, **seconds}
    return model


def _converted(
    core: _core.Model, exported: Exported, *, opset: int, options: ExportOptions, optimize: Optimize
) -> OnnxModel:
    program = exported.program
    outputs = None if options.mutated_outputs else len(returned_leaves(program))
    model = OnnxModel(core, opset, exported.axes(), exported.rewriting_steps)
    convert_graph(model, options=options, optimize=optimize, outputs=outputs)
    if options.modules_as_functions:
        _core.outline_modules(core, functions_of_program(program, options.modules_as_functions))
    return model


def convert_graph(
    model: OnnxModel, *, options: ExportOptions, optimize: Optimize = True, outputs: int | None = None
) -> None:
    """From torch's operators to those of the model's opset, in place; `outputs` of the graph stay, all if None."""
    chosen = chosen_decompositions(options.decompositions)
    with phase("converting"):
        _core.convert(
            model._core,
            opset=model.opset,
            trace=decompose.tracer(chosen),
            outputs=outputs,
            target=options.target,
            fused_attention=optimize is not False,
            converters=options.dispatcher.rows() if options.dispatcher is not None else {},
            decompositions=list(chosen),
        )
    if optimize:
        with phase("optimizing"):
            model.optimize(target=optimize if isinstance(optimize, str) else "portable")


def imported(
    program: ExportedProgram, shapes: Sequence[LeafShape] = (), options: ExportOptions = ExportOptions()
) -> _core.Model:
    """The program as a graph of torch operators, under names that users know."""
    program = without_vmaps(program)
    refuse_strides_of_views(program)
    names = program_names(program, shapes, inputs=options.input_names, outputs=options.output_names)
    return _core.import_program(program, input_names=names.inputs, output_names=names.outputs, dim_names=names.dims)


def _shapes_of_program(program: ExportedProgram, dynamic_shapes: DynamicShapes) -> list[LeafShape]:
    """Names for the axes of a program that is already traced."""
    if dynamic_shapes is None:
        return []
    if program.example_inputs is None:
        raise InvalidArgumentError(
            "dynamic_shapes names the axes of an exported program that holds no example inputs; leave it out, "
            "or export the module itself"
        )
    args, kwargs = program.example_inputs
    with torch_export_patches(patch=False):
        return normalise(ordered_call(program.module(), tuple(args), kwargs), dynamic_shapes)
