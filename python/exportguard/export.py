"""From a module or an exported program to an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from .arguments import require_choice, require_kind
from .conversion import convert
from .decompose import Decompositions
from .dispatcher import Dispatcher
from .dynamic_shapes import DynamicShapes, LeafShape, normalise
from .errors import ExportError, InvalidArgumentError
from .foreign_names import takes_foreign_names
from .guard import torch_export_patches
from .inputs import CallInputs
from .module_functions import ModulesAsFunctions
from .onnx_model import OnnxModel, first_difference, require_writable
from .opsets import checked_opset
from .optimization import Optimize, checked_optimize
from .reading import Exported, OnFixedAxis, read
from .request import ExportOptions, ExportRequest
from .tracing import exported_module


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
    place of a container, a cache for example, goes to every tensor in it that has the axis. For an exported program it
    only gives names.
    `rewrite` is that of `torch_export_patches`: with "auto", what stops the export at tensor data is rewritten.
    `dispatcher` has converters for operators of one's own, or instead of those that exist (that of `options` if None).
    `decompositions` are operators that torch takes apart although they have a lowering, or a function for each that
    does it. `modules_as_functions` are classes of modules, or "repeated" for what the model repeats, a list of layers
    for example: each becomes the call of a local function, with its weights as inputs.
    Without `opset` it is the newest that the installed onnxruntime runs.
    `optimize` fuses nodes into standard operators; "onnxruntime" takes operators of that runtime as well, False leaves
    every operator as it was lowered, which also runs with no sample and no query where attention does not. With
    "onnxruntime-genai" the caches of a decoder may lie in buffers longer than what they hold, and padding stops it.

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

    def exported(options: ExportOptions) -> Exported:
        if isinstance(model_or_program, ExportedProgram):
            _require_fitting(model_or_program, () if kwargs else args)
            shapes = _shapes_of_program(model_or_program, dynamic_shapes)
            return Exported(model_or_program, shapes, is_given=True)
        return exported_module(
            ExportRequest.of(
                model_or_program, args, kwargs, dynamic_shapes=dynamic_shapes, options=options, rewrite=rewrite
            )
        )

    found = exported(options)
    found.require_axes(on_fixed_axis)
    model = convert(read(found, options), opset=opset, options=options, optimize=optimize)
    if options.repeats == "verify":
        traced_all = read(exported(replace(options, repeats="trace all")), options)
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


def _require_fitting(program: ExportedProgram, args: Sequence[Any]) -> None:
    """A program is converted as it is: what it does not take, beside it, is meant for another export."""
    examples = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    taken = {name: examples.get(name) for name in program.graph_signature.user_inputs if isinstance(name, str)}
    expected = {name: value for name, value in taken.items() if isinstance(value, torch.Tensor)}
    given = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if len(given) != len(expected):  # of containers that nobody takes apart here
        return
    for (name, example), value in zip(expected.items(), given, strict=True):
        sizes = zip(example.shape, value.shape, strict=False)
        has_sizes = all(size == own for size, own in sizes if isinstance(size, int))
        if example.dtype != value.dtype or example.dim() != value.dim() or not has_sizes:
            raise InvalidArgumentError(
                f"the exported program takes {example.dtype} of {list(example.shape)} for {name}, got {value.dtype} of "
                f"{list(value.shape)}; it is converted as it was exported: pass the module to export it with these, or "
                "leave args out"
            )


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
        return normalise(CallInputs.of(program.module().forward, tuple(args), kwargs), dynamic_shapes)
