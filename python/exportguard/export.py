"""From a module or an exported program to an ONNX model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch.export import ExportedProgram

from . import _core, decompose
from .arguments import require_choice, require_flags, require_kind, require_named, require_names
from .axis_report import AxisOutcome, returned_leaves, symbol_names, taken_leaves
from .decompose import Decompositions, chosen_decompositions
from .dispatcher import Dispatcher
from .dynamic_shapes import DynamicShapes, LeafShape, normalise
from .errors import AxisError, ExportError, InvalidArgumentError
from .foreign_names import takes_foreign_names
from .guard import PatchOptions, torch_export_patches
from .inputs import CallInputs, ordered_call
from .memory_order import refuse_strides_of_views
from .module_calls import patches_for
from .module_functions import ModulesAsFunctions, as_wanted, functions_of_program
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

    `guard` is what the guard installs, as options or as arguments of `torch_export_patches` by name; None exports
    without a guard. `input_names` and `output_names` have one name for each input and output of the ONNX model. What a
    model writes into its inputs and buffers comes as more outputs, `<name>_mutated`, unless `mutated_outputs` is False.
    `repeats` is "trace once" (blocks that make the operator calls of an earlier one are not traced again), "trace all",
    or "verify": both, and the models are compared. `dispatcher` has converters of one's own, `decompositions`
    operators that are taken apart although they have a lowering. `modules_as_functions` are classes of modules that
    become local functions of the ONNX model, or "repeated". `target` is what the model is written for: where it has no
    kernel for a dtype, the model computes in another one; "onnx" is the standard alone. `examples` are more inputs,
    each a dictionary of arguments by name, of a model whose inputs go together as patches and the grid that counts
    them: other sizes cannot be tried there with inputs that are made of the one example (see "Axes that change").
    """

    guard: PatchOptions | Mapping[str, Any] | None = PatchOptions()
    strict: bool = False
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    external_data: ExternalData = "auto"
    mutated_outputs: bool = True
    repeats: Repeats = "trace once"
    dispatcher: Dispatcher | None = None
    decompositions: Decompositions = ()
    modules_as_functions: ModulesAsFunctions = ()
    target: Target = "onnxruntime-cpu"
    examples: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.guard is not None and not isinstance(self.guard, PatchOptions):
            require_named("options.guard", self.guard)
            object.__setattr__(self, "guard", torch_export_patches.given(self.guard))
        require_flags(strict=self.strict, mutated_outputs=self.mutated_outputs)
        require_names("input_names", self.input_names)
        require_names("output_names", self.output_names)
        require_choice("external_data", self.external_data, EXTERNAL_DATA)
        object.__setattr__(self, "decompositions", chosen_decompositions(self.decompositions))
        as_wanted(self.modules_as_functions)
        require_choice("target", self.target, ("onnx", "onnxruntime-cpu", "onnxruntime-cuda"))
        for number, example in enumerate(self.examples):
            require_named(f"options.examples[{number}]", example)

    def opened_guard(self) -> torch_export_patches | None:
        """The guard that these ask for, to be opened."""
        return None if self.guard is None else torch_export_patches.given(self.guard)


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
    rewrite: Any = (),
) -> Exported:
    """torch.export under the guard; `rewrite` is that of `torch_export_patches`."""
    _require_module(model)
    guard = _with_module_calls(_with_rewrite(options, rewrite))
    call = ordered_call(model, args, kwargs)

    # A converter needs no gradients, and what is traced without them has fewer changes of mode to keep.
    # A block that was not traced has the sources of another, which would be taken for its module.
    repeats: Repeats = "trace all" if options.modules_as_functions else options.repeats
    with torch.no_grad(), traced_with_markers(repeats) as counts, recorded_phases() as seconds:
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
    guard = options.opened_guard()
    if guard is None:
        raise InvalidArgumentError("rewrite needs the guard; leave options.guard as it is")
    return replace(options, guard=replace(guard, rewrite=(*as_rewrites(guard.rewrite), *patches)))


def _with_module_calls(options: ExportOptions) -> torch_export_patches | None:
    """The guard, with the patches that make the modules which the dispatcher translates one operator each."""
    guard = options.opened_guard()
    if options.dispatcher is None or not options.dispatcher.modules:
        return guard
    if guard is None:
        raise InvalidArgumentError("to translate a class of modules needs the guard; leave options.guard as it is")
    return replace(guard, custom_patches=(*guard.custom_patches, *patches_for(options.dispatcher.modules)))


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
    chosen = chosen_decompositions(options.decompositions)
    with phase("converting"):
        _core.convert(
            core,
            opset=opset,
            trace=decompose.tracer(chosen),
            outputs=outputs,
            target=options.target,
            fused_attention=optimize is not False,
            converters=converters,
            decompositions=list(chosen),
        )
    model = OnnxModel(core, opset, exported.axes(), exported.rewriting_steps)
    if optimize:
        with phase("optimizing"):
            model.optimize(target=optimize if isinstance(optimize, str) else "portable")
    if options.modules_as_functions:
        _core.outline_modules(core, functions_of_program(program, options.modules_as_functions))
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
