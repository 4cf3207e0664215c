"""The first node of a converted model that makes a wrong value of right ones."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from .. import _core
from ..arguments import require_choice, require_count, require_kind, require_named
from ..conversion import convert
from ..dynamic_shapes import DynamicShapes
from ..errors import ExportGuardError, InvalidArgumentError
from ..guard import torch_export_patches
from ..inputs import CallInputs, flatten_named
from ..onnx_model import OnnxModel, load
from ..optimization import Optimize
from ..reading import Exported, ReadProgram, read
from ..request import ExportOptions, ExportRequest
from ..runners.names import require_same
from ..tracing import exported_module
from .discrepancies import Discrepancy, Tolerance, discrepancy_of
from .model_inputs import random_inputs

Runner = Literal["onnxruntime", "evaluator"]
RUNNERS = ("onnxruntime", "evaluator")
Model = OnnxModel | str | Path | bytes
logger = logging.getLogger(__name__)
_FEW_OPERATORS = 4  # more or less than a model has: it was made in that way, but for what went wrong
_LEAST_WORK_FIRST: Sequence[Optimize] = (False, True, "onnxruntime")
_TAKES_A_PART = ("Split", "Slice", "Gather")
_LARGEST_IN_MEMORY = 1 << 30  # bytes of a model that onnxruntime is given without a file


@dataclass(frozen=True, kw_only=True)
class DivergenceOptions:
    """How to search. `runner` is what runs the model; `tolerance` is that of each dtype if None.

    Both sides run in step; beyond what each still reads, `window` bytes of values are held for the report.
    """

    runner: Runner = "evaluator"
    device: str = "cpu"
    tolerance: Tolerance | None = None
    window: int = 1 << 30

    def __post_init__(self) -> None:
        require_choice("runner", self.runner, RUNNERS)
        require_count("window", self.window, at_least=1)
        if self.tolerance is not None:
            require_kind("tolerance", self.tolerance, Tolerance, "Tolerance(absolute=…, relative=…)")


@dataclass(frozen=True)
class NodePlace:
    """A node of either side: its operator, the names it has in its graph, and its place in the user's model.

    Local functions are compared with what they do in the place of each call: `name` is `Function/value` then.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str
    source: str
    code: str
    torch_operator: str

    def __str__(self) -> str:
        made = ", ".join(self.outputs)
        function = f"{self.name} of the function" if "/" in self.name else ""
        place = ", ".join(part for part in (function, self.module, self.source) if part)
        return f"{self.operator} -> {made}{f' ({place})' if place else ''}"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where a model stops computing what it should.

    `node` is the one whose output is the first wrong value, or the one in `nodes` (all between right values and that
    one) that differs from what a conversion makes now. `expected` and `got` are the value by right `inputs`; `got` is
    None where the model stops with the `error`. `times_rounding` is not 0 where no value is beyond its tolerance but
    the outputs are: how many times the rounding of its inputs the error of this node is. Within a body of `If`, `Loop`
    or `Scan`, `inside` is the node there that is wrong first, and `iteration` counts from 0.
    """

    value: str
    node: NodePlace
    reference_node: NodePlace | None
    nodes: Sequence[NodePlace]
    reference_nodes: Sequence[NodePlace]
    discrepancy: Discrepancy
    inputs: Mapping[str, Any]
    expected: Any
    got: Any
    error: str = ""
    is_runtimes_own: bool = False
    times_rounding: float = 0.0
    inside: NodePlace | None = None
    iteration: int | None = None
    reproduction: OnnxModel = field(repr=False)

    @property
    def module(self) -> str:
        """The path of the module in the user's model."""
        return self.node.module or (self.reference_node.module if self.reference_node else "")

    @property
    def source(self) -> str:
        """File and line of the user's model."""
        return self.node.source or (self.reference_node.source if self.reference_node else "")

    def __str__(self) -> str:
        lines = [f"the first wrong value is {self.value!r}, of {self.node}", f"  {self._why()}"]
        if self.reference_node is not None:
            lines.append(f"  it should be that of {self.reference_node}")
        if self.node.code:
            lines.append(f"  line: {self.node.code.strip()}")
        if self.inside is not None:
            lines.append(f"  within it, in iteration {self.iteration}: {self.inside}")
        if len(self.nodes) > 1:
            lines.append(f"  between right values and it: {'; '.join(map(str, self.nodes))}")
        lines += [f"  input {name}: {_described(value)}" for name, value in self.inputs.items()]
        return "\n".join(lines)

    def _why(self) -> str:
        if self.error:
            return self.error
        if self.is_runtimes_own:
            return f"the runtime computes it wrongly, the evaluator does not: {_figures(self.discrepancy)}"
        if self.times_rounding:
            times = f"{self.times_rounding:.0f} times the rounding of its inputs"
            return f"its error is {times}; no node is beyond its tolerance by itself: {_figures(self.discrepancy)}"
        return _figures(self.discrepancy)


@dataclass(frozen=True, kw_only=True)
class DivergenceReport:
    """What a search found: the `outputs` of the model as it is, and the first divergence (None: there is none).

    `further` are values behind it that are wrong although their inputs were right. `error` is what stopped the model.
    """

    outputs: Sequence[Discrepancy]
    first: Divergence | None
    further: Sequence[Discrepancy]
    nodes: int
    aligned: int
    error: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the model runs and no output and no value on the way is wrong."""
        return not self.error and self.first is None and all(output.agrees for output in self.outputs)

    def __str__(self) -> str:
        seen = f"{self.aligned} values of {self.nodes} nodes were aligned"
        if self.agrees:
            return f"no divergence: {len(self.outputs)} outputs agree; {seen}"
        wrong = [f"output {output.name}: {_figures(output)}" for output in self.outputs if not output.agrees]
        head = self.error or "; ".join(wrong) or "every output agrees, but a value on the way to them does not"
        place = str(self.first) if self.first else "no node makes a wrong value of right ones"
        return "\n".join([head, place, seen])


def find_divergence(
    reference: torch.nn.Module | ExportedProgram | Model,
    model: Model,
    args: Sequence[Any] | Mapping[str, torch.Tensor] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: DynamicShapes = None,
    options: DivergenceOptions = DivergenceOptions(),
    export: ExportOptions = ExportOptions(),
) -> DivergenceReport:
    """Runs a model beside what it was made from, and finds the first node that makes a wrong value of right ones.

    `reference` is the module (it is exported again with `dynamic_shapes` and the options of `export`, both as they were
    for the model), the exported program, or another ONNX model. `args` and `kwargs` are the inputs of a call; or `args`
    is a mapping by the names of the ONNX model's inputs.

    >>> layer = torch.nn.Linear(4, 2)
    >>> from exportguard import to_onnx
    >>> model = to_onnx(layer, (torch.zeros(3, 4),), opset=23)
    >>> find_divergence(layer, model, (torch.ones(3, 4),)).first is None
    True

    Raises:
        InvalidArgumentError: what is given is no model, or inputs do not fit it.
        ExportGuardError: the reference cannot be exported or run.
    """
    onnx_model = _as_model("model", model)
    require_kind("options", options, DivergenceOptions, "DivergenceOptions(…)")
    exported = _exported(reference, args, kwargs, dynamic_shapes, export)
    if exported is None:
        inputs = _named(args) if args else None
        return compare(_as_model("reference", reference), onnx_model, inputs, options=options)

    program = read(exported, export)
    names = [name for name, _, _, _ in program.graph.inputs]
    feeds = _feeds(reference, exported, names, (args, kwargs))
    return _search_program(program, onnx_model, dict(zip(names, feeds, strict=True)), options, export)


def search_beside(
    exported: Exported,
    model: OnnxModel,
    inputs: Mapping[str, Any],
    *,
    options: DivergenceOptions = DivergenceOptions(),
    export: ExportOptions = ExportOptions(),
) -> DivergenceReport:
    """`find_divergence` with the program that the model was made from, and inputs by the names that both have."""
    return _search_program(read(exported, export), model, inputs, options, export)


def _search_program(
    program: ReadProgram, model: OnnxModel, inputs: Mapping[str, Any], options: DivergenceOptions, export: ExportOptions
) -> DivergenceReport:
    """Looks beside the program, which is made ready to run."""
    _core.functionalize(program.graph)
    names = [name for name, _, _, _ in program.graph.inputs]
    require_same(names, list(inputs))
    searched = _search(program.graph, model, [inputs[name] for name in names], options)
    found = _report(searched)
    if found.first is None:
        return found

    nodes, inner = _suspects(searched[0], found.first)
    if len(nodes) == 1 and len(inner) == 1:
        return replace(found, first=replace(found.first, node=nodes[0]))
    # What a graph does otherwise shows in the evaluator, which needs no session for each of the conversions.
    options = options if found.first.is_runtimes_own else replace(options, runner="evaluator")
    first = _narrowed(found.first, (nodes, inner), _divergence_here(searched, options, export))
    if first is None:
        whole = _divergence_of_whole(program, model, inputs, options, export)
        first = _narrowed(found.first, (nodes, inner), whole) or found.first
    return replace(found, first=first)


def compare(
    a: Model,
    b: Model,
    inputs: Mapping[str, torch.Tensor] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    options: DivergenceOptions = DivergenceOptions(),
) -> DivergenceReport:
    """Runs two ONNX models beside each other and finds the first node of `b` that makes a wrong value of right ones.

    `a` is the reference. Without `inputs` they are drawn: `sizes` has those of the axes by name.

    Outputs stand for each other by their order, whatever they are called.

    Raises:
        InvalidArgumentError: the models do not take the same inputs, do not make as many outputs, or have either in
            another order; or the inputs that are given do not fit.
        ExportGuardError: `a` cannot be run.
    """
    first, second = _as_model("a", a), _as_model("b", b)
    _require_alike(first, second)
    names = [value.name for value in first.inputs]
    feeds = random_inputs(first, sizes, seed) if inputs is None else dict(_named(inputs, "inputs"))
    require_same(names, list(feeds))
    return _report(_search(first._core, second, [feeds[name] for name in names], options))


def _require_alike(first: OnnxModel, second: OnnxModel) -> None:
    """Two models that can be compared: with one order of inputs, of the same dtypes, and as many outputs."""
    taken = [[value.name for value in model.inputs] for model in (first, second)]
    made = [[value.name for value in model.outputs] for model in (first, second)]
    for names, word in ((taken, "take their inputs"), (made, "make their outputs")):
        if names[0] != names[1] and sorted(names[0]) == sorted(names[1]):
            raise InvalidArgumentError(
                f"the models {word} in another order: {', '.join(names[0])} and {', '.join(names[1])}; "
                "declare both in one order"
            )
    if taken[0] != taken[1]:
        raise InvalidArgumentError(f"the models take other inputs: {', '.join(taken[0])} and {', '.join(taken[1])}")
    for a, b in zip(first.inputs, second.inputs, strict=True):
        if a.dtype != b.dtype:
            raise InvalidArgumentError(
                f"the models take input {a.name!r} as {a.dtype} and {b.dtype}: only models that take the same values "
                "can be compared; cast it within the second"
            )
    if len(made[0]) != len(made[1]):
        raise InvalidArgumentError(
            f"the models make {len(made[0])} and {len(made[1])} outputs: {', '.join(made[0])} and {', '.join(made[1])}"
        )


def _exported(
    reference: Any, args: Any, kwargs: Any, dynamic_shapes: DynamicShapes, options: ExportOptions
) -> Exported | None:
    """What the module was exported to; None for an ONNX model."""
    if isinstance(reference, ExportedProgram):
        return Exported(reference)
    if not isinstance(reference, torch.nn.Module):
        return None
    if isinstance(args, Mapping):
        raise InvalidArgumentError("a module is called with args and kwargs; inputs by name go with a program or model")
    return exported_module(ExportRequest.of(reference, args, kwargs, dynamic_shapes=dynamic_shapes, options=options))


def _feeds(reference: object, exported: Exported, names: Sequence[str], given: tuple[Any, Any]) -> list[Any]:
    """The inputs of the ONNX model, out of a call or by name."""
    args, kwargs = given
    if isinstance(args, Mapping):
        require_same(names, list(args))
        return [args[name] for name in names]
    if isinstance(reference, torch.nn.Module):
        call = CallInputs.of(reference.forward, args, kwargs)
    else:
        call = CallInputs(tuple(args), dict(kwargs or {}))
    with torch_export_patches(patch=False):
        leaves = flatten_named((call.args, dict(call.kwargs)))
    taken = exported.inputs.taken
    if len(leaves) != len(taken):
        raise InvalidArgumentError(f"the program takes {len(taken)} values, got {len(leaves)}")
    values = [leaf.value for leaf, is_taken in zip(leaves, taken, strict=True) if is_taken]
    return [torch.tensor(value) if isinstance(value, bool | int | float) else value for value in values]


def _named(args: Any, what: str = "args") -> Mapping[str, torch.Tensor]:
    require_named(what, args)
    inputs: Mapping[str, torch.Tensor] = args
    return inputs


def _as_model(name: str, model: Any) -> OnnxModel:
    require_kind(name, model, (OnnxModel, str, Path, bytes), "an OnnxModel, the path of one, or its bytes")
    if not isinstance(model, OnnxModel):
        return load(model)
    _core.settle_names(model._core)  # what is told of it has the names of a file
    return model


def _search(
    reference: _core.Model, model: OnnxModel, feeds: Sequence[Any], options: DivergenceOptions
) -> tuple[_core.ReportView, OnnxModel]:
    bound = options.tolerance
    tolerance = (bound.absolute, bound.relative) if bound is not None else None
    run = _in_onnxruntime(options.device) if options.runner == "onnxruntime" else None
    found = _core.find_divergence(
        reference, model._core, list(feeds), device=options.device, tolerance=tolerance, window=options.window, run=run
    )
    return found, model


def _in_onnxruntime(device: str) -> Callable[[_core.Model, list[Any]], list[Any]]:
    """Runs a part of a model once; one that is large goes through a file, with its weights beside it."""
    from ..runners.onnxruntime import OrtSession, SessionOptions  # onnxruntime need not be installed

    def run(model: _core.Model, feeds: list[Any]) -> list[Any]:
        with TemporaryDirectory(prefix="exportguard-") as folder:
            file = str(Path(folder) / "part.onnx")
            _core.save(model, file, inline_limit=_LARGEST_IN_MEMORY)
            try:
                session = OrtSession(file, SessionOptions(device=device))
                return list(session.run(dict(zip(session.input_names, feeds, strict=True))))
            except ExportGuardError:
                raise
            except Exception as error:  # onnxruntime has no common base for its own
                raise ExportGuardError(f"onnxruntime: {error}") from error

    return run


def _suspects(found: _core.ReportView, first: Divergence) -> tuple[list[NodePlace], list[NodePlace | None]]:
    """The nodes of the place, but for those that right values were made of as well; and the same within a body.

    Where the place has no bodies, or one node alone makes the wrong value in them, the second is one item: what stands
    in `first`. Where it has bodies and no node in them was found, there is none.
    """
    if found.first is None:
        return [], []
    cleared = [_place(node) for node in found.first.cleared]
    nodes = [node for node in first.nodes if node not in cleared]
    inner: list[NodePlace | None] = [_place(node) for node in found.first.inside_nodes]
    has_bodies = len(first.nodes) == 1 and found.first.beside() is not None
    return nodes, inner or ([] if has_bodies else [first.inside])


def _narrowed(
    first: Divergence, suspects: tuple[list[NodePlace], list[NodePlace | None]], other: Divergence | None
) -> Divergence | None:
    """The divergence with the node, or the one in a body, that differs from another conversion; None if none does."""
    nodes, inner = suspects
    if len(nodes) == 1:
        first = replace(first, node=nodes[0])
    elif other is not None and other.node in nodes:
        first = replace(first, node=other.node)
    else:
        return None
    is_inside = other is not None and other.inside is not None and (other.inside in inner or not inner)
    if other is not None and is_inside and len(inner) != 1:
        first = replace(first, inside=other.inside, iteration=other.iteration)
    return first


def _divergence_here(
    searched: tuple[_core.ReportView, OnnxModel], options: DivergenceOptions, export: ExportOptions
) -> Divergence | None:
    """What differs from a conversion of now of the place alone; None if that does not tell."""
    first, opset = searched[0].first, searched[1].opset
    candidates = []
    for optimize in _ways_of(searched[1]):
        beside = first.beside() if first is not None else None
        if beside is None:
            return None
        try:
            made = convert(ReadProgram(graph=beside[0]), opset=opset, options=export, optimize=optimize)
        except ExportGuardError as error:
            logger.debug("the place alone is not converted: %s", error)
            continue
        candidates.append((made, OnnxModel(beside[1], opset), beside[2]))
        if _unlikeness(*candidates[-1][:2]) == 0:
            break
    likest = _search_likest(candidates, options)
    if likest is None or (other := likest[0].first) is None:
        return None

    # With a value of the model beside each of the conversion, or a node that it has too many, that of the whole program
    # would tell no more; but of a product for three operators, of which a part is wrong, it alone has the like.
    is_whole = likest[0].aligned >= likest[1].node_count and other.node.operator not in _TAKES_A_PART
    is_sure = other.node in other.nodes[:-1] or len(other.nodes) == 1 or is_whole
    return other if is_sure else None


def _divergence_of_whole(
    program: ReadProgram,
    model: OnnxModel,
    inputs: Mapping[str, Any],
    options: DivergenceOptions,
    export: ExportOptions,
) -> Divergence | None:
    """The same of a conversion of the whole program."""
    candidates = []
    for optimize in sorted(_ways_of(model), key=_LEAST_WORK_FIRST.index):
        try:
            again = replace(program, graph=program.graph.copy(), functions={})
            made = convert(again, opset=model.opset, options=export, optimize=optimize)
        except ExportGuardError as error:
            logger.debug("the program is not converted again: %s", error)
            continue
        names = [value.name for value in made.inputs]
        if names == [value.name for value in model.inputs]:
            candidates.append((made, model, [inputs[name] for name in names]))
            if _unlikeness(made, model) <= _FEW_OPERATORS:
                break
    found = _search_likest(candidates, options)
    return found[0].first if found is not None else None


def _ways_of(model: OnnxModel) -> tuple[Optimize, ...]:
    """In which it may have been optimized, the likest first.

    Operators of onnxruntime's own are left by that for it alone, which need not leave any.
    """
    if any(operator.endswith("GroupQueryAttention") for operator in model._core.operators):
        return ("onnxruntime-genai", "onnxruntime", False)
    is_for_runtime = any(operator.startswith("com.microsoft") for operator in model._core.operators)
    return ("onnxruntime", False) if is_for_runtime else (True, "onnxruntime", False)


def _search_likest(
    candidates: Sequence[tuple[OnnxModel, OnnxModel, Sequence[Any]]], options: DivergenceOptions
) -> tuple[DivergenceReport, OnnxModel] | None:
    """Looks beside the conversion that is most like the model: optimized in its way, or not at all."""
    if not candidates:
        return None
    made, model, feeds = min(candidates, key=lambda candidate: _unlikeness(*candidate[:2]))
    _core.settle_names(made._core)
    try:
        return _report(_search(made._core, model, feeds, options)), made
    except ExportGuardError as error:
        logger.debug("a conversion of now does not run beside it: %s", error)
        return None


def _unlikeness(a: OnnxModel, b: OnnxModel) -> int:
    """How many operators one has more than the other."""
    missing = Counter(b._core.operators)
    missing.subtract(a._core.operators)
    return sum(map(abs, missing.values()))


def _report(searched: tuple[_core.ReportView, OnnxModel]) -> DivergenceReport:
    found, model = searched
    return DivergenceReport(
        outputs=[discrepancy_of(finding) for finding in found.outputs],
        first=_divergence(found.first, model) if found.first is not None else None,
        further=[discrepancy_of(finding) for finding in found.further],
        nodes=found.nodes,
        aligned=found.aligned,
        error=found.error,
    )


def _divergence(found: _core.DivergenceView, model: OnnxModel) -> Divergence:
    return Divergence(
        value=found.finding.name,
        node=_place(found.node),
        reference_node=_place(found.reference_node) if found.reference_node is not None else None,
        nodes=tuple(map(_place, found.nodes)),
        reference_nodes=tuple(map(_place, found.reference_nodes)),
        discrepancy=discrepancy_of(found.finding, found.expected),
        inputs=found.inputs,
        expected=found.expected,
        got=found.got,
        error=found.error,
        is_runtimes_own=found.is_runtimes_own,
        times_rounding=found.times_rounding,
        inside=_place(found.inside) if found.inside is not None else None,
        iteration=found.iteration,
        reproduction=OnnxModel(found.reproduction, model.opset),
    )


def _place(node: _core.NodeView) -> NodePlace:
    source = f"{node.file}:{node.line}" if node.line else node.file
    return NodePlace(
        name=node.name,
        operator=node.op,
        inputs=tuple(node.inputs),
        outputs=tuple(node.outputs),
        module=node.module,
        source=source,
        code=node.code,
        torch_operator=node.target,
    )


def _figures(found: Discrepancy) -> str:
    if found.problem:
        return found.problem
    if found.tolerance is None:
        return "not compared"
    bound = f"{found.tolerance.absolute:.1e} + {found.tolerance.relative:.1e} * |expected|"
    return (
        f"off by {found.max_absolute:.2e} at the most (at {found.max_absolute_at}), {found.share_over:.1%} of the "
        f"values beyond {bound}"
    )


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{len(value)} values" if isinstance(value, list) else str(type(value).__name__)
