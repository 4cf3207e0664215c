"""From a module or an exported program to an ONNX model."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from . import _core
from .axis_report import AxisOutcome, axis_outcomes, returned_leaves, symbol_names, taken_leaves
from .decompose import expand
from .dynamic_shapes import DynamicShapes, LeafShape, for_torch, normalise, shared_dims
from .errors import InvalidArgumentError
from .export_errors import explained_export
from .fixed_axes import with_recording
from .guard import torch_export_patches
from .inputs import CallInputs, ordered_call
from .memory_order import refuse_strides_of_views
from .onnx_model import ExternalData, OnnxModel, require_writable
from .opsets import checked_opset
from .rewrites.automatic import RewritingStep
from .rewrites.selection import as_rewrites
from .signature import program_names

logger = logging.getLogger(__name__)

_Prepare = Callable[[CallInputs], CallInputs]
_Steps = Callable[[], Sequence[RewritingStep]]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is seldom changed.

    `guard` holds arguments of `torch_export_patches`; None exports without a guard. `input_names` and `output_names`
    have one name for each input and output of the ONNX model. What a model writes into its inputs and buffers comes as
    more outputs, `<name>_mutated`, unless `mutated_outputs` is False.
    """

    guard: Mapping[str, Any] | None = field(default_factory=dict)
    strict: bool = False
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    external_data: ExternalData = "auto"
    mutated_outputs: bool = True


@dataclass(frozen=True)
class Exported:
    """A program, the shapes that were asked for, one for each leaf of the inputs, and the lines that fixed a symbol."""

    program: ExportedProgram
    shapes: Sequence[LeafShape] = ()
    fixing_lines: Mapping[str, str] = field(default_factory=dict)
    rewriting_steps: Sequence[RewritingStep] = ()

    def axes(self) -> list[AxisOutcome]:
        """What became of each axis that was asked for."""
        return axis_outcomes(self.program, self.shapes, self.fixing_lines) if self.shapes else []


def to_onnx(
    model_or_program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: DynamicShapes = None,
    opset: int | None = None,
    output: str | os.PathLike[str] | None = None,
    rewrite: Any = (),
    options: ExportOptions = ExportOptions(),
) -> OnnxModel:
    """Converts a module, or what torch.export made of one, to ONNX, and saves it if `output` is given.

    A module is exported with `args` and `kwargs` under the guard. `dynamic_shapes` is nested like the inputs and names
    the axes that change, `{"input_ids": {0: "batch", 1: "seq"}}`: axes of one name are equal. One `{axis: name}` in the
    place of a container, a cache for example, goes to every tensor in it. For an exported program it only gives names.
    `rewrite` is that of `torch_export_patches`: with "auto", what stops the export at tensor data is rewritten.
    Without `opset` it is the newest that the installed onnxruntime runs.

    >>> model = to_onnx(torch.nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=({0: "batch"},))
    >>> model.inputs[0].shape
    ('batch', 4)

    Raises:
        InvalidArgumentError: what is given is no module or program, or dynamic shapes or opset are wrong.
        ExportError: torch.export stops; it names the line of the model and the remedy.
        FileError: `output` cannot be written; that is found out before anything else is done.
        LoweringError: with every operator that has no lowering, where it is, and how often.
    """
    opset = checked_opset(opset)
    target = require_writable(output) if output is not None else None
    if isinstance(model_or_program, ExportedProgram):
        exported = Exported(model_or_program, _shapes_of_program(model_or_program, dynamic_shapes))
    else:
        exported = export_program(
            model_or_program, args, kwargs, dynamic_shapes=dynamic_shapes, rewrite=rewrite, options=options
        )
    model = convert(exported, opset=opset, options=options)
    if target is not None:
        model.save(target, external_data=options.external_data)
    return model


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
    lines: dict[str, str] = {}
    with _guard(_with_rewrite(options, rewrite), lines) as (prepare, steps):
        call = prepare(ordered_call(model, args, kwargs))
        shapes = normalise(model, call, dynamic_shapes)
        with explained_export():
            program = _traced(model, call, shapes, options.strict)
        return Exported(program, shapes, lines, steps())


def _with_rewrite(options: ExportOptions, rewrite: Any) -> ExportOptions:
    patches = as_rewrites(rewrite)
    if not patches:
        return options
    if options.guard is None:
        raise InvalidArgumentError("rewrite needs the guard; leave options.guard as it is")
    given = as_rewrites(options.guard.get("rewrite", ()))
    return replace(options, guard={**options.guard, "rewrite": (*given, *patches)})


def _traced(model: torch.nn.Module, call: CallInputs, shapes: Sequence[LeafShape], strict: bool) -> ExportedProgram:
    """torch.export; where a model bounds an axis, torch refuses the axis' `Dim`, and a hint is taken instead."""

    # Importing this takes a second, which torch.export takes anyway.
    from torch._dynamo.exc import UserError, UserErrorType

    def export(dims: Mapping[str, Dim]) -> ExportedProgram:
        spec = for_torch(model, call, shapes, dims)
        return torch.export.export(model, call.args, dict(call.kwargs), dynamic_shapes=spec, strict=strict)

    dims = shared_dims(shapes)
    try:
        return export(dims)
    except UserError as error:
        if error.error_type != UserErrorType.CONSTRAINT_VIOLATION or not dims:
            raise
        logger.info("exporting again, without telling torch that axes of one name are equal: %s", error)
    return export({})


def convert(exported: Exported, *, opset: int, options: ExportOptions) -> OnnxModel:
    """The conversion alone, in C++, without a second trace."""
    program, shapes = exported.program, exported.shapes
    core = imported(program, shapes, options)
    _core.functionalize(core)
    if not options.mutated_outputs:
        _core.keep_outputs(core, len(returned_leaves(program)))
    expand(core)
    _core.lower(core, opset=opset)
    return OnnxModel(core, opset, exported.axes(), exported.rewriting_steps)


def imported(
    program: ExportedProgram, shapes: Sequence[LeafShape] = (), options: ExportOptions = ExportOptions()
) -> _core.Model:
    """The program as a graph of torch operators, under names that users know."""
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


@contextlib.contextmanager
def _guard(options: ExportOptions, lines: dict[str, str]) -> Iterator[tuple[_Prepare, _Steps]]:
    """Yields what makes new containers of the inputs, so that the trace leaves the user's caches as they are, and the
    steps of the rewriting."""
    if options.guard is None:
        yield lambda call: call, lambda: ()
        return
    with torch_export_patches(**with_recording(options.guard, lines)) as prepare:
        yield lambda call: CallInputs(prepare(call.args), prepare(dict(call.kwargs))), lambda: prepare.rewriting_steps


def _require_module(model: Any) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidArgumentError(
            f"{type(model).__name__} is a TorchScript module, which torch.export does not take; pass the module "
            "that it was scripted from"
        )
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            f"model_or_program must be a torch.nn.Module or an ExportedProgram, got {type(model).__name__}; "
            "wrap a function in the forward of a module"
        )
    if model.training:
        logger.warning("%s is in training mode and is exported so; call eval() first", type(model).__name__)
