"""Exports a model with what a runtime needs beside it, proves the folder in that runtime, and only then shows it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from exportguard.errors import ExportGuardError, InvalidArgumentError
from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.models.input_sets import sliding_window
from exportguard.optional import OptionalModule
from exportguard.validation.discrepancies import Discrepancy
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case
from exportguard.version import versions

from . import genai
from .decoder import KeysAndValues, decoder_to_onnx, plain_cache, shapes_of
from .generation import Prompts, compare_generation, generated
from .staging import REPORT, require_free, staged_folder

transformers: Any = OptionalModule("transformers")
logger = logging.getLogger(__name__)

Runtime = Literal["onnxruntime", "genai"]
Progress = Callable[[str], None]
MODEL_FILE = "model.onnx"
_GENERATION = "text-generation"


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """For which `runtime` the folder is, and how the model is built; without `verify` nothing is run."""

    build: BuildOptions = BuildOptions()
    runtime: Runtime = "onnxruntime"
    opset: int | None = None
    verify: bool = True


@dataclass(kw_only=True)
class ExportedFolder:
    """What was written and what was proved. `comparisons` are those with eager, `runtime_agrees` whether the runtime
    itself generated the same tokens; None where it was not run."""

    folder: str
    model: str
    task: str
    runtime: str
    node_count: int = 0
    parameters: int = 0
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    comparisons: list[Discrepancy] = field(default_factory=list)
    runtime_agrees: bool | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For the report in the folder."""
        comparisons = [one.as_dict() for one in self.comparisons]
        return {**asdict(self), "comparisons": comparisons, "versions": versions()}


def export_model(
    model: str,
    output: str | os.PathLike[str],
    options: FolderOptions = FolderOptions(),
    progress: Progress = lambda step: None,
) -> ExportedFolder:
    """Writes a folder with the model called `model` (an architecture, a local folder or a hub id).

    It holds `model.onnx` (large weights beside it), the configuration, the tokenizer or processor where the model has
    one, for onnxruntime-genai its `genai_config.json`, and a report of what was compared and with which versions. The
    folder appears under its name when everything is done.

    Raises:
        InvalidArgumentError: no such model or task, or a model that the runtime cannot keep the state of.
        FileError: the folder is taken or cannot be written, found out before the work.
        ExportGuardError: what was exported does not compute what the model computes; nothing is left behind.
    """
    target = Path(output)
    require_free(target)
    timer = _Timer(progress)
    with timer("load", "loading the model"):
        case = build_model(model, options.build)
    _require_runtime(case, options)
    with staged_folder(target) as staging:
        result = ExportedFolder(folder=str(target), model=model, task=case.task.name, runtime=options.runtime)
        result.parameters = sum(parameter.numel() for parameter in case.model.parameters())
        cache = _generation_cache(case, options)
        if cache is None:
            _write_other(case, staging, options, _Step(result, timer))
        else:
            _write_decoder(case, cache, staging, options, _Step(result, timer))
        with timer("configuration", "writing configuration and tokenizer"):
            _write_companions(model, case, staging)
        result.seconds = dict(timer.seconds)
        (staging / REPORT).write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    return result


class _Timer:
    """Times steps and tells of them."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[None]:
        self._progress(text)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


@dataclass(frozen=True)
class _Step:
    result: ExportedFolder
    timer: _Timer


def _require_runtime(case: ModelCase, options: FolderOptions) -> None:
    if options.runtime == "genai" and case.task.name != _GENERATION:
        raise InvalidArgumentError(
            f"onnxruntime-genai folders are for {_GENERATION}, and {case.name} is exported for {case.task.name}; pass "
            "another runtime or task"
        )


def _generation_cache(case: ModelCase, options: FolderOptions) -> Any:
    """Keys and values as generation loops keep them; None where the model is written as its own code calls it."""
    if case.task.name != _GENERATION:
        return None
    try:
        return plain_cache(case.model)
    except InvalidArgumentError as error:
        if options.runtime == "genai":
            raise
        logger.info("the file takes the states of the model's own cache: %s", error)
        return None


def _write_decoder(case: ModelCase, cache: Any, staging: Path, options: FolderOptions, step: _Step) -> None:
    # Before the export, which leaves the model as it is, so that nothing of it can explain a difference away.
    prompts = _prompts(case, options, step.timer)
    with step.timer("export", "exporting and converting"):
        onnx_model = decoder_to_onnx(case.model, cache, opset=options.opset)
    with step.timer("save", "writing the weights"):
        onnx_model.save(staging / MODEL_FILE)
    step.result.node_count = onnx_model.node_count
    step.result.inputs = [value.name for value in onnx_model.inputs]
    step.result.outputs = [value.name for value in onnx_model.outputs]
    if prompts is not None:
        with step.timer("compare", "generating with onnxruntime"):
            step.result.comparisons = compare_generation(staging / MODEL_FILE, shapes_of(cache), prompts, _dtype(cache))
        _require_agreement(case.name, step.result.comparisons)
    if options.runtime == "genai":
        _write_genai(case, shapes_of(cache), staging, prompts, step)


def _dtype(cache: Any) -> torch.dtype:
    dtype: torch.dtype = cache.layers[0].keys.dtype
    return dtype


def _prompts(case: ModelCase, options: FolderOptions, timer: _Timer) -> Prompts | None:
    if not options.verify:
        return None
    with timer("eager", "generating with transformers"):
        return generated(case.model, sliding_window(case))


def _write_genai(case: ModelCase, cache: KeysAndValues, staging: Path, prompts: Prompts | None, step: _Step) -> None:
    genai.write(staging, genai.genai_config(case.model, cache, MODEL_FILE, step.result.inputs))
    if prompts is None:
        return
    if importlib.util.find_spec("onnxruntime_genai") is None:
        logger.warning("onnxruntime-genai is not installed: the folder was compared in onnxruntime alone")
        return
    with step.timer("genai", "generating with onnxruntime-genai"):
        runner = importlib.import_module("exportguard.runners.genai")
        tokens = runner.generate(staging, prompts.input_ids[0], prompts.tokens.shape[1])
    step.result.runtime_agrees = bool(torch.equal(tokens, prompts.tokens[0]))
    if not step.result.runtime_agrees:
        raise ExportGuardError(
            f"onnxruntime-genai generates {tokens.tolist()} and transformers {prompts.tokens[0].tolist()} from the "
            f"first {prompts.input_ids.shape[1]} tokens; nothing was written"
        )


def _write_other(case: ModelCase, staging: Path, options: FolderOptions, step: _Step) -> None:
    """Any other task: exported and compared as `exportguard validate` does."""
    settings = ValidateOptions(build=options.build, opset=options.opset, run=options.verify)
    with step.timer("export", "exporting, converting and comparing"):
        report = validate_case(case, staging / MODEL_FILE, settings)
    if not report.ok:
        raise ExportGuardError(_why_not(report))
    step.result.node_count = report.node_count
    step.result.inputs, step.result.outputs = list(report.inputs), list(report.outputs)
    step.result.comparisons = [output for one in report.sets for output in one.outputs]


def _why_not(report: ValidationReport) -> str:
    if report.failure:
        return f"{report.model} was not exported: {report.failure}"
    fixed = [str(axis) for axis in report.axes if not axis.kept]
    if fixed:
        return f"{report.model} was not exported: {'; '.join(fixed)}"
    wrong = [f"{one.name}: {one.error or 'other numbers'}" for one in report.sets if not one.agrees]
    return f"{report.model} was not exported: its file differs from eager ({'; '.join(wrong)})"


def _require_agreement(name: str, comparisons: Sequence[Discrepancy]) -> None:
    wrong = [one for one in comparisons if not one.agrees]
    if wrong:
        first = wrong[0]
        what = (
            first.problem or f"largest difference {first.max_absolute:.2g}, {first.share_over:.1%} over the tolerance"
        )
        raise ExportGuardError(f"the file of {name} does not generate what the model does: {first.name}: {what}")


def _write_companions(source: str, case: ModelCase, staging: Path) -> None:
    """The configuration, and what turns texts, pictures and sounds into inputs, where the source has it."""
    model: Any = case.model
    model.config.save_pretrained(staging)
    if model.can_generate():
        model.generation_config.save_pretrained(staging)
    if not Path(source).is_dir() and "/" not in source:
        return  # an architecture: untrained, without words
    for loader in (transformers.AutoProcessor, transformers.AutoTokenizer):
        try:
            loader.from_pretrained(source, trust_remote_code=False).save_pretrained(staging)
        except (OSError, ValueError, KeyError, ImportError) as error:
            logger.info("%s has no %s: %s", source, loader.__name__, error)
            continue
        return
    logger.warning("%s has no tokenizer or processor that can be loaded; the folder is without", source)


def summary(result: ExportedFolder) -> Mapping[str, str]:
    """What a person wants to know of a folder, line by line."""
    compared = f"{len(result.comparisons)} outputs agree with eager" if result.comparisons else "nothing was compared"
    runtime = {None: "", True: ", its runtime generates the same tokens", False: ""}[result.runtime_agrees]
    return {
        "folder": result.folder,
        "model": f"{result.model}, {result.task}, {result.parameters:,} parameters, {result.node_count} nodes",
        "inputs": ", ".join(result.inputs),
        "verified": compared + runtime,
        "seconds": ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.seconds.items()),
    }
