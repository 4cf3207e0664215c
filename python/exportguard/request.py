"""What is to be exported, and how: checked and put in order once, and handed on as one value."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from .arguments import require_choice, require_count, require_flags, require_named, require_names
from .axes.enlarging import enlarged
from .axes.model_run import ModelRun
from .declaration import Patch
from .decompose import Decompositions, chosen_decompositions
from .dispatcher import Dispatcher
from .dynamic_shapes import DynamicShapes
from .errors import InvalidArgumentError
from .example import Example
from .guard import PatchOptions, torch_export_patches
from .inputs import CallInputs
from .module_calls import patches_for
from .module_functions import ModulesAsFunctions, as_wanted
from .module_tree import without_wrappers
from .onnx_model import EXTERNAL_DATA, ExternalData
from .phases import phase, recorded_phases
from .repeats.plan import Repeats
from .rewrites.automatic import AutomaticRewriting
from .rewrites.selection import as_rewrites

logger = logging.getLogger(__name__)

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
    `positions` are the most that a text has, for `optimize="onnxruntime-genai"`: with them attention turns queries and
    keys itself, by tables of as many rows. With `check_sizes` the file stops at sizes at which, as `OnnxModel.axes`
    says, it would not be the model; `optimize` of the file afterwards may take equal names for equal sizes.
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
    positions: int | None = None
    check_sizes: bool = True

    def __post_init__(self) -> None:
        if self.guard is not None and not isinstance(self.guard, PatchOptions):
            require_named("options.guard", self.guard)
            object.__setattr__(self, "guard", torch_export_patches.given(self.guard))
        require_flags(strict=self.strict, mutated_outputs=self.mutated_outputs, check_sizes=self.check_sizes)
        require_names("input_names", self.input_names)
        require_names("output_names", self.output_names)
        require_choice("external_data", self.external_data, EXTERNAL_DATA)
        object.__setattr__(self, "decompositions", chosen_decompositions(self.decompositions))
        as_wanted(self.modules_as_functions)
        require_choice("target", self.target, ("onnx", "onnxruntime-cpu", "onnxruntime-cuda"))
        if self.positions is not None:
            require_count("positions", self.positions, 1)
        for number, example in enumerate(self.examples):
            require_named(f"options.examples[{number}]", example)

    def opened_guard(self) -> torch_export_patches | None:
        """The guard that these ask for, to be opened."""
        return None if self.guard is None else torch_export_patches.given(self.guard)


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A module with an example of its inputs, and how it is exported.

    The example has two or more of everything that is to change; `too_small` are the sizes, by input and axis, that were
    enlarged for it. `further` are more calls of the module, for one whose inputs of other sizes cannot be made of the
    example. `patches` are those of one attempt, beside what the guard installs. `seconds` are those of making this.
    `is_rewritten` if the guard rewrites by itself what stops an export. `returns_written` if what the module writes
    into inputs and buffers is asked for.
    """

    model: torch.nn.Module
    example: Example
    guard: torch_export_patches | None
    strict: bool = False
    repeats: Repeats = "trace once"
    further: Sequence[CallInputs] = ()
    patches: Sequence[Patch] = ()
    too_small: Mapping[tuple[str, int], int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    is_rewritten: bool = False
    returns_written: bool = True

    @classmethod
    def of(
        cls,
        model: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        *,
        dynamic_shapes: DynamicShapes,
        options: ExportOptions,
        rewrite: object = (),
    ) -> ExportRequest:
        """What the arguments of `to_onnx` ask for.

        Raises:
            InvalidArgumentError: one of them is of another kind, or does not fit the module, or the module takes no
                larger example than one that is too small.
        """
        _require_module(model)
        model = without_wrappers(model)
        guard = _with_module_calls(_with_rewrite(options, rewrite))
        call = CallInputs.of(model.forward, args, kwargs)
        _require_no_arguments_in(call, model)
        further = [CallInputs.of(model.forward, (), inputs) for inputs in options.examples]
        with serializers_of(guard), recorded_phases() as seconds, phase("reading the axes"):
            call = call.apart_from([*model.parameters(), *model.buffers()])
            given = Example.of(call, dynamic_shapes)
            _require_dense(given)
            too_small = given.small_sizes()
            example = enlarged(given, ModelRun(model, call).takes) if too_small else given

        # A block that was not traced has the sources of another, which would be taken for its module.
        repeats: Repeats = "trace all" if options.modules_as_functions else options.repeats
        return cls(
            model=model,
            example=example,
            guard=guard,
            strict=options.strict,
            repeats=repeats,
            further=further,
            too_small=too_small,
            seconds=seconds,
            is_rewritten=guard is not None and _is_automatic(guard.rewrite),
            returns_written=options.mutated_outputs,
        )


@contextlib.contextmanager
def serializers_of(guard: torch_export_patches | None) -> Iterator[None]:
    """Classes of inputs are taken apart as in the guard, and a model is run as it is, without patches."""
    if guard is None:
        yield
        return
    with torch_export_patches(patch=False, serializers=guard.serializers):
        yield


def _with_rewrite(options: ExportOptions, rewrite: object) -> ExportOptions:
    patches = as_rewrites(rewrite)
    if not patches:
        return options
    guard = options.opened_guard()
    if guard is None:
        raise InvalidArgumentError("rewrite needs the guard; leave options.guard as it is")
    return replace(options, guard=replace(guard, rewrite=(*as_rewrites(guard.rewrite), *patches)))


def _is_automatic(rewrite: object) -> bool:
    return any(isinstance(patch, AutomaticRewriting) for patch in as_rewrites(rewrite))


def _with_module_calls(options: ExportOptions) -> torch_export_patches | None:
    """The guard, with the patches that make the modules which the dispatcher translates one operator each."""
    guard = options.opened_guard()
    if options.dispatcher is None or not options.dispatcher.modules:
        return guard
    if guard is None:
        raise InvalidArgumentError("to translate a class of modules needs the guard; leave options.guard as it is")
    return replace(guard, custom_patches=(*guard.custom_patches, *patches_for(options.dispatcher.modules)))


def _require_module(model: object) -> None:
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        raise InvalidArgumentError(
            "tensors have no numbers here, within a FakeTensorMode; call to_onnx outside of it, with a model that has "
            "its weights"
        )
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            f"model_or_program must be a torch.nn.Module or an ExportedProgram, got {type(model).__name__}; "
            f"{_instead_of(model)}"
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidArgumentError(
            f"{type(model).__name__} is a TorchScript module, which torch.export does not take; take the module that "
            "it was made of, or call it in the forward of another one if it was traced"
        )
    for name, part in model.named_modules():
        _require_traced(f"{name} of {type(model).__name__}" if name else type(model).__name__, part)
    if model.training:
        logger.warning("%s is in training mode and is exported so; call eval() first", type(model).__name__)


def _require_dense(example: Example) -> None:
    for leaf in (shape.leaf for shape in example.shapes):
        if isinstance(leaf.value, torch.Tensor) and str(leaf.value.layout).startswith("torch.sparse"):
            raise InvalidArgumentError(
                f"{leaf.name} is a tensor of layout {leaf.value.layout}, which no runtime of ONNX takes; pass "
                "x.to_dense(), and let forward call what takes such a one"
            )


def _require_traced(name: str, part: torch.nn.Module) -> None:
    """Refuses a module that torch cannot trace, whatever it is called with, in a model."""
    if isinstance(part, torch.jit.ScriptModule) and not isinstance(part, torch.jit._trace.TracedModule):
        raise InvalidArgumentError(
            f"{name} is a TorchScript module, which torch.export does not take; take the module that it was scripted "
            "from"
        )
    if any(map(is_lazy, part.parameters(recurse=False))):
        raise InvalidArgumentError(
            f"{name}, a {type(part).__name__}, has no weights before its first call; call the model once"
        )
    packed = next((value for value in vars(part).values() if _is_opaque(value)), None)
    if packed is not None:
        raise InvalidArgumentError(
            f"{name}, a {type(part).__name__}, holds what only kernels of torch can read ({packed._type().name()}); "
            "export the model as it was before it was quantized or packed, and quantize the file"
        )


def _is_opaque(value: object) -> bool:
    """Whether it is an object of TorchScript that tells no one of what it is made (see `torch.library`)."""
    return isinstance(value, torch.ScriptObject) and not hasattr(value, "__obj_flatten__")


def _require_no_arguments_in(call: CallInputs, model: torch.nn.Module) -> None:
    """torch.onnx.export once took a dictionary at the end of `args` for the arguments by name.

    So some take what a tokenizer or a processor returns.
    """
    last = call.args[-1] if call.args and not call.kwargs else None
    if not isinstance(last, Mapping) or not last or not set(last) <= call.signature.parameters.keys():
        return
    if not ModelRun(model, call).takes(call):
        kind = "dictionary" if isinstance(last, dict) else type(last).__name__
        raise InvalidArgumentError(
            f"the model does not take the {kind} at the end of args, which has {', '.join(map(str, last))}; pass "
            "arguments by name as kwargs={…}"
        )


def _instead_of(model: object) -> str:
    if isinstance(model, str | os.PathLike):
        return "load the model first, or run `exportguard export -m MODEL -o FOLDER`"
    if isinstance(model, type):
        return "pass an instance of the class"
    if hasattr(model, "to_dict") and hasattr(model, "model_type"):
        return "build the model first, AutoModelForCausalLM.from_config(config)"
    return "wrap a function in the forward of a module"
