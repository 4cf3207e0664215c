"""Proves a conversion: builds a model, exports and converts it, and compares it with the original on several sizes."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from ..axes.traced_program import TracedProgram
from ..axis_report import AxisOutcome
from ..conversion import convert
from ..devices import require_device
from ..dynamic_shapes import DynamicShapes
from ..errors import REFUSALS, InvalidArgumentError
from ..export import require_same
from ..export_errors import place_in_model
from ..inputs import Leaf
from ..interrupted import interrupts_come_out
from ..models import BuildOptions, ModelCase, build_model
from ..models.input_sets import InputSet, all_input_sets, input_sets
from ..module_tree import without_wrappers
from ..notebook_tables import bars, page, table
from ..observed_shapes import observed_dynamic_shapes
from ..onnx_model import load, made_folder
from ..opsets import checked_opset
from ..reading import Exported, read, returned_leaves
from ..repeats.counts import Counts
from ..repeats.plan import Repeats
from ..request import ExportOptions, ExportRequest
from ..runners.evaluator import EvaluatorSession
from ..runners.onnxruntime import OrtSession, SessionOptions
from ..tracing import exported_module
from ..version import versions
from .beside import Beside, Ran, refusal, run_beside
from .comparison import Converted, Record, compare, feeds_of
from .divergence import DivergenceOptions, DivergenceReport, search_beside
from .eager_outputs import EagerRun, eager_run, serializers
from .exporters import EXPORTERS, Exporter, file_name
from .own_module import ModuleCase, case_of_program, is_program, module_case
from .set_result import SetResult, with_others_telling

Runner = Literal["onnxruntime", "evaluator"]
Progress = Callable[[str], None]
Settled = Callable[["ValidationReport"], None]

Outcome = Literal[
    "ok",
    "not built",
    "does not run eagerly",
    "not exported",
    "not converted",
    "not loaded by the runtime",
    "stopped while it ran",
    "axes fixed",
    "differs",
]

#: What a validation came to that did not do a step; the steps in their order.
_UNDONE: Mapping[str, Outcome] = {
    "build": "not built",
    "eager": "does not run eagerly",
    "export": "not exported",
    "convert": "not converted",
    "load": "not loaded by the runtime",
}


@dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """How to validate. Without `folder` the ONNX file goes to a temporary folder; without `run` nothing is compared.

    With `rewrite`, functions that stop the export at tensor data are rewritten; that is one of the patches.
    `repeats` is that of `ExportOptions`. With `all_sizes` it is compared on every combination of sizes, those left out
    that the original refuses. With `side_by_side` the exported program and the converted model run beside
    each other, on the first set of inputs that does not agree (or the first one), in search of the first wrong node.
    `beside` is another runner, which is given every set of inputs as well: what it makes of them is no part of the
    verdict.
    """

    build: BuildOptions = BuildOptions()
    exporter: Exporter = "exportguard"
    opset: int | None = None
    patch: bool = True
    rewrite: bool = True
    repeats: Repeats = "trace once"
    run: bool = True
    runner: Runner = "onnxruntime"
    beside: Runner | None = None
    all_sizes: bool = False
    side_by_side: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuses what compares the inputs and outputs of the model, where the file has wider ones.

        Raises:
            InvalidArgumentError: with what to leave out.
        """
        others = {
            "exporter": self.exporter != "exportguard", "beside": bool(self.beside), "side_by_side": self.side_by_side
        }  # fmt: skip
        asked = [name for name, is_asked in others.items() if is_asked]
        if self.build.float32_io and asked:
            raise InvalidArgumentError(
                f"{asked[0]} compares what the model itself takes and returns, and float32_io changes that; "
                "leave one of them out"
            )


@dataclass(kw_only=True)
class ValidationReport:
    """Everything that was found out, in the order it was; `failure` is the first step that could not be done."""

    model: str
    task: str = ""
    exporter: str
    opset: int
    dtype: str
    device: str
    runner: str = "onnxruntime"
    file: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    float32_io: list[str] = field(default_factory=list)  # those of both that are wider than the model's own
    node_count: int = 0
    parameters: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    axes: list[AxisOutcome] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)  # seconds of each phase of the export and the conversion
    repeats: dict[str, int] = field(default_factory=dict)  # operator calls of repeated blocks: replayed, traced
    sets: list[SetResult] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # sizes that a module of the user's own raises for
    side_by_side: str = ""  # what the search for the first wrong node found
    beside: Beside | None = None  # what another runner made of the same inputs
    failure: str = ""
    details: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was converted, every axis that was asked to change does, and every comparison agrees."""
        return (
            not self.failure and all(axis.kept for axis in self.axes) and all(compared.agrees for compared in self.sets)
        )

    @property
    def outcome(self) -> Outcome:
        """What it came to in a word that reports can be sorted by; a failure by the step that could not be done."""
        if self.failure:
            undone = [outcome for step, outcome in _UNDONE.items() if step not in self.seconds]
            return undone[0] if undone else "stopped while it ran"
        if any(not axis.kept for axis in self.axes):
            return "axes fixed"
        return "ok" if self.ok else "differs"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, the axes, and each comparison."""
        word = "ok" if self.ok else f"not ok: {self.failure or self.outcome}"
        axes = [(axis.input, axis.axis, axis.asked, "kept" if axis.kept else "not kept", axis) for axis in self.axes]
        outputs = [(compared, output) for compared in self.sets for output in compared.outputs]
        rows = [
            (one.name, one.sizes, output.name, f"{output.max_absolute:.1e}", output.problem or _word(output.agrees))
            for one, output in outputs
        ]
        errors = [(compared.name, compared.sizes, "", "", compared.error) for compared in self.sets if compared.error]
        return page(
            f"{self.model}, {self.task or 'a module'}, {self.dtype}, opset {self.opset}: {word}",
            (
                table("axes that were asked to change", ("input", "axis", "asked", "", "how"), axes),
                table("comparisons with eager", ("inputs", "sizes", "output", "largest", ""), [*rows, *errors]),
                bars("seconds", self.seconds, "{:.2f}"),
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """For a JSON report."""
        sets = [
            {
                **asdict(compared),
                "outputs": [output.as_dict() for output in compared.outputs],
                "agrees": compared.agrees,
            }
            for compared in self.sets
        ]
        axes = [axis.as_dict() for axis in self.axes]
        return {
            **asdict(self),
            "axes": axes,
            "sets": sets,
            "ok": self.ok,
            "outcome": self.outcome,
            "versions": versions(),
        }


def _word(agrees: bool) -> str:
    return "agrees" if agrees else "differs"


def validate_model(
    name: str,
    options: ValidateOptions = ValidateOptions(),
    progress: Progress = lambda step: None,
    settled: Settled = lambda report: None,
) -> ValidationReport:
    """Builds the model called `name` and validates it on the inputs of its task.

    `settled` is called with the report when all but the runner beside is done: that one may take the process down.

    Raises:
        InvalidArgumentError: no such model, task, device or opset. What goes wrong later stands in the report.
    """
    require_device(options.build.device)
    report = _empty_report(name, options)
    progress("building the model")
    with _folder(options) as folder, _failures_in(report):
        with _timed(report, "build"):
            case = _built(name, options)
        _validate(case, options, _Run(report, progress, _file_in(Path(folder), case), settled=settled))
    return report


def validate_module(
    module: torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    dynamic_shapes: DynamicShapes = None,
    options: ValidateOptions = ValidateOptions(),
    progress: Progress = lambda step: None,
) -> ValidationReport:
    """Exports and converts a module of one's own and compares it with eager, at the sizes of the example and others.

    `inputs` is a tuple of arguments or a dictionary of them. The axes that `dynamic_shapes` names are given other
    sizes: larger ones, unlike each other, and 1, within the bounds of a `torch.export.Dim`; an axis called `past+seq`
    follows those two. Sizes that the module itself raises for are not compared, and stand in the report.

    >>> validate_module(torch.nn.Linear(4, 2).eval(), (torch.randn(3, 4),), ({0: "batch"},)).ok
    True

    Raises:
        InvalidArgumentError: the module is in training mode, or inputs, shapes or opset are wrong. What goes wrong
            later stands in the report.
    """
    case = module_case(without_wrappers(module), inputs, dynamic_shapes)
    with _folder(options) as folder:
        return validate_case(case, _file_in(Path(folder), case), options, progress)


def validate_case(
    case: ModelCase,
    file: Path,
    options: ValidateOptions = ValidateOptions(),
    progress: Progress = lambda step: None,
    calls: list[dict[str, torch.Tensor]] | None = None,
) -> ValidationReport:
    """Validates a model that is built, and leaves its ONNX file at `file`; what goes wrong stands in the report.

    What the file was given in each comparison is added to `calls`.
    """
    report = _empty_report(case.name, options)
    report.seconds["build"] = 0.0
    with _failures_in(report):
        _validate(case, options, _Run(report, progress, file, [] if calls is None else calls))
    return report


def _file_in(folder: Path, case: ModelCase) -> Path:
    return folder / file_name(case.name)


class _UsageError(Exception):
    """Carries an error of the caller out of `_failures_in`."""


def _built(name: str, options: ValidateOptions) -> ModelCase:
    try:
        if is_program(name):
            return case_of_program(name, options.build, followed=("device", "float32_io"))
        return build_model(name, options.build)
    except InvalidArgumentError as error:
        raise _UsageError from error


@contextmanager
def _failures_in(report: ValidationReport) -> Iterator[None]:
    """Whatever the model, torch or onnxruntime raise is the result of a validation."""
    try:
        with interrupts_come_out():
            yield
    except _UsageError as error:
        raise error.__cause__ or error from None
    except Exception as error:
        report.failure = f"{type(error).__name__}: {error}{_where(error, report)}"
        report.details = traceback.format_exc()


def _where(error: Exception, report: ValidationReport) -> str:
    """The line of the model, where that does not run by itself; errors of an export tell it."""
    runs_eagerly = {"build", "eager"} & report.seconds.keys() == {"build"}
    place = place_in_model(error) if runs_eagerly else ""
    return f" (the model itself raises it, at {place})" if place else ""


@dataclass(frozen=True)
class _Run:
    """What the steps of one validation share."""

    report: ValidationReport
    progress: Progress
    file: Path
    calls: list[dict[str, torch.Tensor]] = field(default_factory=list)
    runs: list[Ran] = field(default_factory=list)
    settled: Settled = lambda report: None

    @contextmanager
    def step(self, name: str, text: str) -> Iterator[None]:
        self.progress(text)
        with _timed(self.report, name):
            yield


def _validate(case: ModelCase, options: ValidateOptions, run: _Run) -> None:
    run.report.task = case.task.name
    run.report.parameters = sum(parameter.numel() for parameter in case.model.parameters())
    run.report.refused = list(case.refused) if isinstance(case, ModuleCase) else []
    sets = _sets_of(case, options) if options.run else []
    with run.step("eager", f"running {case.name} eagerly on {len(sets)} sets of inputs"):
        results = _eager_results(case, sets)
    with run.step("export", "exporting with torch.export"):
        exported = _export(case, options)
    run.report.axes = exported.axes()
    run.report.rewritten = [step.report() for step in exported.rewriting_steps]
    run.report.repeats = _replayed_and_traced(exported)
    file = run.file
    with run.step("convert", f"converting with {options.exporter}"):
        _convert(exported, file, options, run.report)
    run.report.file = str(file) if options.folder else ""
    if options.repeats == "verify" and options.exporter == "exportguard":
        with run.step("verify", "tracing everything, and comparing the models"):
            _verify_repeats(case, options, exported)
    if not sets:
        return
    with run.step("load", f"loading it in the {options.runner}"):
        session = _session(file, options.runner, options.build.device)
    returns = returned_leaves(exported.program)
    computed_in = list(itertools.compress(TracedProgram(exported.program).computed_in, returns))
    converted = Converted(case, session, exported.inputs.taken, returns, computed_in, frozenset(run.report.float32_io))
    record = Record(run.calls, run.runs)
    for one, expected in results:
        with run.step(f"run {one.name}", f"comparing: {one.name}"):
            run.report.sets.append(compare(converted, one, expected, record))
    run.report.sets = with_others_telling(run.report.sets)
    if options.side_by_side and options.exporter == "exportguard":
        wrong = [one for (one, _), result in zip(results, run.report.sets, strict=True) if not result.agrees]
        one = wrong[0] if wrong else results[0][0]
        with run.step("side by side", f"running both side by side: {one.name}"):
            run.report.side_by_side = f"{one.name}: {_side_by_side(converted, exported, file, one)}"
    if options.beside:
        _run_beside(options.beside, options.build.device, run)


def _run_beside(runner: Runner, device: str, run: _Run) -> None:
    """Whatever the second runner does, the report on the first stands."""
    run.report.beside = Beside(runner=runner)
    run.settled(run.report)
    with run.step(f"beside {runner}", f"running it in the {runner} as well"):
        try:
            session = _session(run.file, runner, device)
        except Exception as error:  # runtimes have no common base for their own
            run.report.beside = refusal(runner, error)
        else:
            run.report.beside = run_beside(runner, session, run.runs)


def _side_by_side(converted: Converted, exported: Exported, file: Path, input_set: InputSet) -> DivergenceReport:
    """In the runner of the validation; what the model raises for is no different from what it computes wrongly."""
    runner: Runner = "evaluator" if isinstance(converted.session, EvaluatorSession) else "onnxruntime"
    return search_beside(exported, load(file), feeds_of(converted, input_set), options=DivergenceOptions(runner=runner))


def _sets_of(case: ModelCase, options: ValidateOptions) -> list[InputSet]:
    if isinstance(case, ModuleCase):
        return list(case.sets)
    return all_input_sets(case) if options.all_sizes else input_sets(case)


def _session(file: Path, runner: Runner, device: str) -> OrtSession | EvaluatorSession:
    if runner == "evaluator":
        return EvaluatorSession(file, device)
    return OrtSession(file, SessionOptions(device=device))


def _export(case: ModelCase, options: ValidateOptions) -> Exported:
    """The program for the traced sizes, with every axis that follows a size asked to change."""
    request = ExportRequest.of(
        case.model,
        (),
        case.inputs(case.task.sizes),
        dynamic_shapes=_asked(case),
        options=ExportOptions(guard={"patch": options.patch}, repeats=options.repeats, examples=_examples(case)),
        rewrite="auto" if options.patch and options.rewrite else (),
    )
    return exported_module(request)


def _asked(case: ModelCase) -> DynamicShapes:
    """The axes that are asked to change: those that the user names, or else those that follow a size."""
    if isinstance(case, ModuleCase):
        return case.dynamic_shapes
    with serializers():
        shapes: DynamicShapes = observed_dynamic_shapes(
            case.inputs, case.task.sizes, [inputs.sizes for inputs in input_sets(case)]
        )
    return shapes


def _examples(case: ModelCase) -> list[Mapping[str, Any]]:
    """Inputs of the sizes that are compared, and with one of the sizes larger."""
    if isinstance(case, ModuleCase):
        return []
    traced = case.task.sizes
    compared = [inputs.sizes for inputs in input_sets(case)]
    larger = ({**traced, name: size + 2} for name, size in traced.items())
    return [case.inputs(sizes) for sizes in (*compared, *larger)]


def _replayed_and_traced(exported: Exported) -> dict[str, int]:
    """What became of the operator calls of repeated blocks in the trace that gave the program."""
    counts = exported.counts[-1] if exported.counts else Counts()
    return {"blocks": counts.blocks, "replayed": counts.replayed, "traced": counts.recorded}


def _verify_repeats(case: ModelCase, options: ValidateOptions, once: Exported) -> None:
    traced_all = _export(case, replace(options, repeats="trace all"))
    opset = checked_opset(options.opset)
    models = (convert(read(found), opset=opset, options=ExportOptions()) for found in (once, traced_all))
    require_same(*models)


def _eager_results(case: ModelCase, sets: Sequence[InputSet]) -> list[tuple[InputSet, EagerRun]]:
    """What the original returns on each set, or on the one to take instead."""
    results: list[tuple[InputSet, EagerRun]] = []
    for compared in sets:
        try:
            found = eager_run(case, compared)
        except REFUSALS:
            if compared.may_be_refused:
                continue
            if compared.instead is None:
                raise
            found = None
        if compared.instead and (found is None or _ranks(found.leaves) != _ranks(results[0][1].leaves)):
            results.append((compared.instead, eager_run(case, compared.instead)))
        elif found is not None:
            results.append((compared, found))
    return results


def _ranks(leaves: Sequence[Leaf]) -> list[int | None]:
    return [leaf.value.dim() if isinstance(leaf.value, torch.Tensor) else None for leaf in leaves]


def _convert(exported: Exported, file: Path, options: ValidateOptions, report: ValidationReport) -> None:
    try:
        written = EXPORTERS[options.exporter](exported, file, report.opset, options.build)
    except InvalidArgumentError as error:
        raise _UsageError from error
    report.phases, report.node_count = written.phases, written.node_count
    report.inputs, report.outputs, report.float32_io = written.inputs, written.outputs, written.float32_io


def _empty_report(name: str, options: ValidateOptions) -> ValidationReport:
    return ValidationReport(
        model=name,
        exporter=options.exporter,
        opset=checked_opset(options.opset),
        dtype=str(options.build.dtype).removeprefix("torch."),
        device=options.build.device,
        runner=options.runner,
    )


def _folder(options: ValidateOptions) -> AbstractContextManager[Any]:
    if options.folder is None:
        return TemporaryDirectory(prefix="exportguard-")
    return nullcontext(made_folder(options.folder))


@contextmanager
def _timed(report: ValidationReport, step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds[step] = round(time.perf_counter() - start, 3)
