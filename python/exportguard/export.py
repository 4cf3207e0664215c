"""From a module or an exported program to an ONNX model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch.export import ExportedProgram

from . import _core, decompose
from .arguments import require_choice, require_flags, require_kind, require_named, require_names
from .axis_report import AxisOutcome, returned_leaves, symbol_names, taken_leaves
from .dispatcher import Dispatcher
from .dynamic_shapes import DynamicShapes, LeafShape, normalise
from .errors import AxisError, ExportError, InvalidArgumentError
from .foreign_names import takes_foreign_names
from .guard import require_known_options, torch_export_patches
from .inputs import CallInputs, ordered_call
from .memory_order import refuse_strides_of_views
from .onnx_model import EXTERNAL_DATA, ExternalData, OnnxModel, first_difference, require_writable
from .opsets import checked_opset
from .optimization import Optimize, checked_optimize
from .phases import phase, recorded_phases
from .repeats.plan import Repeats, traced_with_markers
from .rewrites.automatic import loops_left
from .rewrites.selection import as_rewrites
from .signature import program_names
from .tracing import Exported, exported_module
from .vmaps import without_vmaps

logger = logging.getLogger(__name__)

OnFixedAxis = Literal["error", "warn"]
Target: TypeAlias = Literal["onnx", "onnxruntime-cpu", "onnxruntime-cuda"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is seldom changed.

    `guard` holds arguments of `torch_export_patches`; None exports without a guard. `input_names` and `output_names`
    have one name for each input and output of the ONNX model. What a model writes into its inputs and buffers comes as
    more outputs, `<name>_mutated`, unless `mutated_outputs` is False. `repeats` is "trace once" (blocks that make the
    operator calls of an earlier one are not traced again), "trace all", or "verify": both, and the models are compared.
    `dispatcher` has converters of one's own. `target` is what the model is written for: where it has no kernel for a
    dtype, the model computes in another one; "onnx" is the standard alone. `examples` are more inputs, each a
    dictionary of arguments by name, of a model whose inputs go together as patches and the grid that counts them:
    other sizes cannot be tried there with inputs that are made of the one example (see "Axes that change").
    """

    guard: Mapping[str, Any] | None = field(default_factory=dict)
    strict: bool = False
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    external_data: ExternalData = "auto"
    mutated_outputs: bool = True
    repeats: Repeats = "trace once"
    dispatcher: Dispatcher | None = None
    target: Target = "onnxruntime-cpu"
    examples: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.guard is not None:
            require_named("options.guard", self.guard)
            require_known_options(self.guard)
        require_flags(strict=self.strict, mutated_outputs=self.mutated_outputs)
        require_names("input_names", self.input_names)
        require_names("output_names", self.output_names)
        require_choice("external_data", self.external_data, EXTERNAL_DATA)
        require_choice("target", self.target, ("onnx", "onnxruntime-cpu", "onnxruntime-cuda"))
        for number, example in enumerate(self.examples):
            require_named(f"options.examples[{number}]", example)


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
    rewrite: Any = (),
    optimize: Optimize = True,
    dispatcher: Dispatcher | None = None,
    options: ExportOptions = ExportOptions(),
) -> OnnxModel:
    """Converts a module, or what torch.export made of one, to ONNX, and saves it if `output` is given.

    A module is exported with `args` and `kwargs` under the guard. `dynamic_shapes` is nested like the inputs and names
    the axes that change, `{"input_ids": {0: "batch", 1: "seq"}}`: axes of one name are equal. One `{axis: name}` in the
    place of a container, a cache for example, goes to every tensor in it. For an exported program it only gives names.
    `rewrite` is that of `torch_export_patches`: with "auto", what stops the export at tensor data is rewritten.
    `dispatcher` has converters for operators of one's own, or instead of those that exist (that of `options` if None).
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
    rewrite: Any = (),
) -> Exported:
    """torch.export under the guard; `rewrite` is that of `torch_export_patches`."""
    _require_module(model)
    guard = _with_rewrite(options, rewrite).guard
    call = ordered_call(model, args, kwargs)

    # A converter needs no gradients, and what is traced without them has fewer changes of mode to keep.
    with torch.no_grad(), traced_with_markers(options.repeats) as counts, recorded_phases() as seconds:
        examples = [ordered_call(model, (), one) for one in options.examples]
        exported = exported_module(model, call, dynamic_shapes, guard, strict=options.strict, examples=examples)
    return replace(exported, counts=tuple(counts), seconds=seconds)


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


def _with_rewrite(options: ExportOptions, rewrite: Any) -> ExportOptions:
    patches = as_rewrites(rewrite)
    if not patches:
        return options
    if options.guard is None:
        raise InvalidArgumentError("rewrite needs the guard; leave options.guard as it is")
    given = as_rewrites(options.guard.get("rewrite", ()))
    return replace(options, guard={**options.guard, "rewrite": (*given, *patches)})


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
    converters = options.dispatcher.rows() if options.dispatcher is not None else {}
    with phase("converting"):
        _core.convert(
            core,
            opset=opset,
            trace=decompose.trace,
            outputs=outputs,
            target=options.target,
            fused_attention=optimize is not False,
            converters=converters,
        )
    model = OnnxModel(core, opset, exported.axes(), exported.rewriting_steps)
    if optimize:
        with phase("optimizing"):
            model.optimize(target=optimize if isinstance(optimize, str) else "portable")
    return model


def imported(
    program: ExportedProgram, shapes: Sequence[LeafShape] = (), options: ExportOptions = ExportOptions()
) -> _core.Model:
    """The program as a graph of torch operators, under names that users know."""
    program = without_vmaps(program)
    refuse_strides_of_views(program)
    names = program_names(program, symbol_names(program, shapes) if shapes else {})
    return _core.import_program(
        program,
        input_names=_renamed("input_names", names.inputs, options.input_names, taken_leaves(program)),
        output_names=_renamed("output_names", names.outputs, options.output_names, returned_leaves(program)),
        dim_names=names.dims,
    )


def _renamed(what: str, names: Sequence[str], given: Sequence[str] | None, used: Sequence[bool]) -> list[str]:
    """The user's own names for the leaves that the model has; constants and None keep theirs."""
    if given is None:
        return list(names)
    if len(given) != sum(used):
        known = ", ".join(name for name, is_used in zip(names, used, strict=True) if is_used)
        raise InvalidArgumentError(f"{what} has {len(given)} names for {sum(used)} values ({known}); pass one for each")
    own = iter(given)
    return [next(own) if is_used else name for name, is_used in zip(names, used, strict=True)]


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
        return normalise(program.module(), CallInputs(tuple(args), kwargs), dynamic_shapes)


def _require_module(model: Any) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidArgumentError(
            f"{type(model).__name__} is a TorchScript module, which torch.export does not take; pass the module "
            "that it was scripted from"
        )
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            f"model_or_program must be a torch.nn.Module or an ExportedProgram, got {type(model).__name__}; "
            f"{_instead_of(model)}"
        )
    if model.training:
        logger.warning("%s is in training mode and is exported so; call eval() first", type(model).__name__)


def _instead_of(model: Any) -> str:
    if isinstance(model, str | os.PathLike):
        return "load the model first, or run `exportguard export -m MODEL -o FOLDER`"
    if isinstance(model, type):
        return "pass an instance of the class"
    if hasattr(model, "to_dict") and hasattr(model, "model_type"):
        return "build the model first, AutoModelForCausalLM.from_config(config)"
    return "wrap a function in the forward of a module"
