"""What an export gives: a program and what is known of its axes; and the program as a graph of torch's operators, under
names that users know.

What no graph of tensors can say is dealt with first: levels of `torch.vmap` are taken out, operators that address the
memory of a view are refused.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from . import _core
from .autocast_regions import require_recorded_dtypes
from .axes.bound import AxisBound
from .axes.limits import Limit, limits_of
from .axes.recording import Decision
from .axes.regions import place_of
from .axes.torch_export import require_one_kind
from .axes.traced_program import traced_inputs
from .axes.vmaps import without_vmaps
from .axis_report import AxisOutcome, axis_outcomes
from .cache_names import input_name, output_name
from .dynamic_shapes import LeafShape, graph_name, name_of
from .errors import AxisError, InvalidArgumentError, LoweringError
from .example import Place
from .joined_parts import are_alone
from .leaf_paths import input_steps, leaf_paths
from .module_functions import FunctionName, ModulesAsFunctions, functions_of_program
from .phases import phase, recorded_phases
from .repeats.counts import Counts
from .repeats.markers import expand as expand_markers
from .request import ExportOptions
from .rewrites.automatic import RewritingStep, loops_left
from .signature import TracedInputs, symbol_names
from .size_checks import SizeCheck, size_checks
from .told_guards import limits_of_program

logger = logging.getLogger(__name__)

_NUMBERS = (bool, int, float)


OnFixedAxis = Literal["error", "warn"]


@dataclass(frozen=True)
class Exported:
    """A program, the shapes that were asked for, one for each leaf of the inputs, and what became of them.

    `fixing_lines` has the lines that fixed a symbol, `bounds` what else the program takes for granted (None: that was
    not looked at). `too_small` has the sizes of the given example that were enlarged, by input and axis. `counts` has
    those of each trace, `seconds` those of each phase, `decisions` what torch decided about sizes, `untested` why its
    tests on sizes are no branches. `may_rewrite` if nothing is rewritten that might be. `joined` has the places of the
    outputs that have all parts of a list behind each other, `limits` the sizes of a program of several ways at which it
    is not the model (None: those that `bounds` tell). A program that `is_given` was exported by somebody else, and says
    itself where it holds. The program may have markers in the place of blocks that were not traced; `expanded` has
    none.
    """

    program: ExportedProgram
    shapes: Sequence[LeafShape] = ()
    fixing_lines: Mapping[str, str] = field(default_factory=dict)
    rewriting_steps: Sequence[RewritingStep] = ()
    bounds: Sequence[AxisBound] | None = None
    too_small: Mapping[tuple[str, int], int] = field(default_factory=dict)
    counts: Sequence[Counts] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    decisions: Sequence[Decision] = ()
    untested: str = ""
    may_rewrite: bool = False
    joined: Set[int] = frozenset()
    limits: Sequence[Limit] | None = None
    is_given: bool = False

    @functools.cached_property
    def inputs(self) -> TracedInputs:
        """The inputs of the program as they were traced."""
        return traced_inputs(self.program)

    def expanded(self) -> ExportedProgram:
        """The program, with the operators in the place of the markers."""
        expand_markers(self.program.graph_module)
        return self.program

    def told_limits(self, names: Sequence[str]) -> Sequence[Limit]:
        """The sizes at which the program is not the model, as far as those of its inputs, of these names, tell."""
        if self.is_given:
            return limits_of_program(self.program, self.inputs, names)
        return limits_of(self.inputs, self.bounds or ()) if self.limits is None else self.limits

    def axes(self) -> list[AxisOutcome]:
        """What became of each axis that was asked for."""
        return (
            axis_outcomes(self.inputs, self.shapes, self.fixing_lines, self.bounds, self.too_small)
            if self.shapes
            else []
        )

    def require_axes(self, on_fixed_axis: OnFixedAxis) -> None:
        """Raises, or logs, if an axis was asked to change and does not, or not to every size that the model takes.

        Raises:
            AxisError: with the line of the model and the remedy for each of them.
        """
        lost = [axis for axis in self.axes() if not axis.kept and not (axis.is_optional and axis.is_constant)]
        if not lost:
            return
        listed = "\n".join(f"  {told}" for told in (*lost, *loops_left(self.program), *filter(None, [self.untested])))
        remedy = f"{_REMEDY}{_for_multiples(lost)}{_REWRITTEN if self.may_rewrite else ''}"
        text = f"of the axes that were asked to change, {len(lost)} do not, or not to every size:\n{listed}\n{remedy}"
        if on_fixed_axis == "error":
            raise AxisError(f'{text}, or pass on_fixed_axis="warn"')
        logger.warning("%s", text)


_REMEDY = (
    "What to do: write that line so that it holds for any size, leave the axis out of dynamic_shapes, give axes that "
    "are always of one size one name, or ask for the sizes that come, with torch.export.Dim(name, min=…, max=…)"
)
_MULTIPLES = re.compile(r"(\w+) % (\d+) == 0")
_REWRITTEN = ', or pass rewrite="auto" to have loops over sizes and tests on them rewritten'


def _for_multiples(lost: Sequence[AxisOutcome]) -> str:
    """How to ask for the multiples of a number, where an axis is lost for other sizes."""
    for axis in lost:
        for bound in axis.bounds:
            found = _MULTIPLES.fullmatch(bound.condition) if bound.excludes_what_was_asked else None
            if found is not None and found[1] == axis.size:
                name = axis.asked if axis.asked.isidentifier() else "n"
                return f", or with {found[2]} * torch.export.Dim({name!r}) for multiples of {found[2]}"
    return ""


@dataclass(frozen=True, kw_only=True)
class ReadProgram:
    """A graph, which the conversion changes in place, and what the program alone tells of it.

    The first `returned` outputs are what the model returns (None: all); behind them stand inputs and buffers that it
    writes. `functions` are the modules that become local functions, by path, `limits` the sizes at which the program is
    not the model, `inputs` the names of all leaves of the inputs, `axis_names` what each axis that was asked to change
    is called (input, axis, name), also where the trace found it equal to others.
    """

    graph: _core.Model
    returned: int | None = None
    functions: Mapping[str, FunctionName] = field(default_factory=dict)
    axes: Sequence[AxisOutcome] = ()
    rewriting_steps: Sequence[RewritingStep] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    limits: Sequence[Limit] = ()
    inputs: Sequence[str] = ()
    axis_names: Sequence[tuple[str, int, str]] = ()

    @property
    def checks(self) -> list[SizeCheck]:
        """Those that a program's limits say without running anything, for C++."""
        return size_checks(self.limits, self.inputs, lambda answer: False)


def read(exported: Exported, options: ExportOptions = ExportOptions()) -> ReadProgram:
    """The graph of what was exported, whose weights it shares.

    Raises:
        InvalidArgumentError: there are more or fewer names of the user's own than values, or no module of a class.
        LoweringError: strides of a view, with the line of the model.
        ProgramError: within torch.autocast other dtypes than were recorded.
    """
    with recorded_phases() as seconds, phase("reading the program"):
        plain = replace(exported, program=without_vmaps(exported.program))
        program, wanted = plain.program, options.modules_as_functions
        _refuse_strides_of_views(program)
        require_recorded_dtypes(program)
        require_one_kind(program)
        functions = functions_of_program(program, wanted) if wanted else {}
        names = program_names(plain, inputs=options.input_names, outputs=options.output_names)
        limits = exported.told_limits(names.inputs)
        graph = _core.import_program(
            program, input_names=names.inputs, output_names=names.outputs, dim_names=names.dims
        )
    return ReadProgram(
        graph=graph,
        returned=len(returned_leaves(program)),
        functions=functions,
        axes=exported.axes(),
        rewriting_steps=exported.rewriting_steps,
        seconds={**exported.seconds, **seconds},
        limits=limits,
        inputs=names.inputs,
        axis_names=[*_axis_names(exported, names.inputs, limits)],
    )


def _axis_names(exported: Exported, inputs: Sequence[str], limits: Sequence[Limit]) -> Iterator[tuple[str, int, str]]:
    """One without a name is called after its place.

    Of a program that was given those that a condition is about: its symbols have found equal what a file has to check.
    """
    traced, names = exported.inputs, dict[str, str]()
    told: set[Place] = set()
    for number, shape in enumerate(exported.shapes):
        if traced.taken[number] and isinstance(traced.leaves[number], torch.Tensor):
            for axis, asked in sorted(shape.axes.items()):
                if not isinstance(asked, int):
                    label = name_of(asked) or _place_name(inputs[number], axis)
                    name = names[label] if label in names else graph_name(label, names.values())
                    names[label] = name
                    told.add(Place(number, axis))
                    yield inputs[number], axis, name
    if exported.is_given:
        places = {place_of(symbol) for limit in limits for symbol in limit.holds.free_symbols}
        for place in sorted(places - told, key=lambda place: (place.leaf, place.axis)):
            name = graph_name(_place_name(inputs[place.leaf], place.axis), names.values())
            names[name] = name
            yield inputs[place.leaf], place.axis, name


def read_program(program: ExportedProgram, modules_as_functions: ModulesAsFunctions = ()) -> ReadProgram:
    """The same of a program for C++, which asks for no more than that."""
    return read(Exported(program, is_given=True), ExportOptions(modules_as_functions=modules_as_functions))


def returned_leaves(program: ExportedProgram) -> list[bool]:
    """For each leaf of the original's outputs whether the model has it, as it has tensors and numbers."""
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    return [not isinstance(spec.arg, ConstantArgument) or isinstance(spec.arg.value, _NUMBERS) for spec in specs]


@dataclass(frozen=True, kw_only=True)
class ProgramNames:
    """Names of the user's inputs and outputs in flat order, constants and None included, and of torch's symbols."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, str]


def program_names(
    exported: Exported, *, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> ProgramNames:
    """The names under which a program is converted.

    Inputs and outputs are named by their path: `input_ids`, `past_key_values.0.key`. What a tuple returns is
    `output_0`, `output_1`, …. A cache, of whatever kind and whether or not there is one among the inputs, is
    `past_key_values.…` there and `present.…` among the outputs; another output with the name of an input gets the
    suffix `_out`. One with all parts of a list behind each other is called as the list. `inputs` and `outputs` are the
    user's own names for those that the model has. Symbols are called as was asked for; the others after the first input
    axis that they stand for.

    Raises:
        InvalidArgumentError: there are more or fewer names of the user's own than values.
    """
    program, traced, shapes = exported.program, exported.inputs, exported.shapes
    known = _input_names(program)
    returned = _output_names(program.call_spec.out_spec, known, exported.joined)
    return ProgramNames(
        inputs=_renamed("input_names", known, inputs, traced.taken),
        outputs=_renamed("output_names", returned, outputs, returned_leaves(program)),
        dims=dimension_names(known, traced.leaves, symbol_names(traced, shapes) if shapes else {}),
    )


def _renamed(what: str, names: Sequence[str], given: Sequence[str] | None, used: Sequence[bool]) -> tuple[str, ...]:
    """The user's own names for the leaves that the model has; constants and None keep theirs."""
    if given is None:
        return tuple(names)
    if len(given) != sum(used):
        known = ", ".join(name for name, is_used in zip(names, used, strict=True) if is_used)
        raise InvalidArgumentError(f"{what} has {len(given)} names for {sum(used)} values ({known}); pass one for each")
    own = iter(given)
    return tuple(next(own) if is_used else name for name, is_used in zip(names, used, strict=True))


def _input_names(program: ExportedProgram) -> tuple[str, ...]:
    return tuple(input_name(".".join(steps)) for steps in input_steps(program))


def joined_names(exported: Exported) -> list[str]:
    """The names of the outputs that have all parts of a list behind each other."""
    names = program_names(exported).outputs if exported.joined else ()
    return [names[place] for place in sorted(exported.joined)]


def _output_names(spec: pytree.TreeSpec, inputs: Sequence[str], joined: Set[int] = frozenset()) -> tuple[str, ...]:
    of_inputs = frozenset(inputs)
    taken = set(inputs)
    names = []
    for place, (path, is_alone) in enumerate(zip(leaf_paths(spec), are_alone(spec), strict=True)):
        path = path.rpartition(".")[0] if is_alone and place in joined else path
        name = _free_name(_beside_inputs(_output_name(path), of_inputs), taken)
        taken.add(name)
        names.append(name)
    return tuple(names)


def _output_name(path: str) -> str:
    if not path:
        return "output_0"
    return f"output_{path}" if path[0].isdigit() else path


def _beside_inputs(path: str, inputs: Set[str]) -> str:
    name = output_name(path)
    return f"{name}_out" if name in inputs else name


def _free_name(name: str, taken: set[str]) -> str:
    candidates = (name if i == 0 else f"{name}_{i}" for i in range(len(taken) + 1))
    return next(candidate for candidate in candidates if candidate not in taken)


def dimension_names(inputs: Sequence[str], examples: Sequence[Any], named: Mapping[str, str]) -> dict[str, str]:
    """A name for each symbol that is a size or value of an input by itself; those in `named` stay.

    >>> dimension_names(["x"], [3], {"s0": "batch"})
    {'s0': 'batch'}
    """
    names = dict(named)
    for name, example in zip(inputs, examples, strict=True):
        for axis, size in _sizes(example):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and str(size.node.expr) not in names:
                readable = name if axis is None else _place_name(name, axis)
                names[str(size.node.expr)] = graph_name(readable, set(names.values()))
    return names


def _place_name(name: str, axis: int) -> str:
    return f"{name}_dim{axis}"


def _sizes(example: object) -> Iterable[tuple[int | None, Any]]:
    return enumerate(example.shape) if isinstance(example, torch.Tensor) else [(None, example)]


def _graphs(program: ExportedProgram) -> list[torch.fx.Graph]:
    modules = program.graph_module.modules()
    return [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]


# Operators that address the memory of a tensor: right only where it lies in the order of its elements.
_STRIDED = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_copy.default,
    torch.ops.aten.as_strided_scatter.default,
)


def _refuse_strides_of_views(program: ExportedProgram) -> None:
    """Raises for strides of a tensor that is a view of another one, as ONNX knows only the order of elements.

    An offset of its own counts from where the memory begins, which a part of another tensor does not know.
    """
    for node in (node for graph in _graphs(program) for operator in _STRIDED for node in _calls(graph, operator)):
        value = node.args[0].meta.get("val")
        if not _lies_in_order(value):
            reason = "the strides are those of a view; call contiguous() on the tensor before"
        elif _offset(node) is not None and not _begins_its_memory(value):
            reason = "storage_offset counts from the tensor that this one is a part of; call clone() on it before"
        else:
            continue
        raise LoweringError(f"{node.target}: {reason}\n{node.meta.get('stack_trace') or ''}".rstrip())


def _offset(node: Any) -> Any:
    """The last argument of operators that address memory; None if the tensor's own is meant."""
    position = [argument.name for argument in node.target._schema.arguments].index("storage_offset")
    return node.args[position] if position < len(node.args) else node.kwargs.get("storage_offset")


def _calls(graph: torch.fx.Graph, operator: Any) -> list[Any]:
    return list(graph.find_nodes(op="call_function", target=operator))


def _begins_its_memory(value: object) -> bool:
    return not isinstance(value, torch.Tensor) or statically_known_true(value.storage_offset() == 0)


def _lies_in_order(value: object) -> bool:
    """Whether the strides are surely the products of the sizes behind each axis."""
    if not isinstance(value, torch.Tensor):
        return True
    product: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not (statically_known_true(stride == product) or statically_known_true(size == 1)):
            return False
        product = product * size
    return True
