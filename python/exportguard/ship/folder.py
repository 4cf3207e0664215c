"""Exports a model with what a runtime needs beside it, proves the folder in that runtime, and only then shows it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import math
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
from exportguard.opsets import checked_opset
from exportguard.optional import OptionalModule
from exportguard.validation.discrepancies import Discrepancy
from exportguard.validation.own_module import case_of_program, is_program
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case
from exportguard.version import made_with, versions

from . import genai
from .decoder import KeysAndValues, decoder_to_onnx, plain_cache, shapes_of
from .generation import (
    NEW_TOKENS,
    Prompts,
    agreement,
    calls_of_generation,
    compare_generation,
    generated,
    generated_by,
)
from .layout import MODEL_FILE, arrange_for_transformers_js
from .quantization import Quantization, QuantizationReport, quantize_file
from .recorded import compared_again, record
from .staging import REPORT, require_free, staged_folder

transformers: Any = OptionalModule("transformers")
logger = logging.getLogger(__name__)

Runtime = Literal["onnxruntime", "genai", "optimum", "transformers.js"]
Progress = Callable[[str], None]
_GENERATION = "text-generation"


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """For which `runtime` the folder is, and how the model is built; without `verify` nothing is run.

    With `quantize` the file is compared as it is exported, and what the quantized one differs by is measured.
    """

    build: BuildOptions = BuildOptions()
    runtime: Runtime = "onnxruntime"
    opset: int | None = None
    verify: bool = True
    quantize: Quantization | None = None


@dataclass(kw_only=True)
class ExportedFolder:
    """What was written and what was proved. `comparisons` are those with eager, `runtime_agrees` whether the runtime
    itself generated the same tokens; None where it was not run. `agreement` is that of a quantized file, `bytes` the
    size of the file with its weights."""

    folder: str
    model: str
    task: str
    runtime: str
    opset: int = 0
    dtype: str = ""
    node_count: int = 0
    parameters: int = 0
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    comparisons: list[Discrepancy] = field(default_factory=list)
    quantization: QuantizationReport | None = None
    agreement: dict[str, float] = field(default_factory=dict)
    bytes: int = 0
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
        case = case_of_program(model) if is_program(model) else build_model(model, options.build)
    _require_runtime(case, options)
    with staged_folder(target) as staging:
        result = ExportedFolder(folder=str(target), model=model, task=case.task.name, runtime=options.runtime)
        result.opset = checked_opset(options.opset)
        result.dtype = str(options.build.dtype).removeprefix("torch.")
        result.parameters = sum(parameter.numel() for parameter in case.model.parameters())
        cache = _generation_cache(case, options)
        if cache is None:
            _write_other(case, staging, options, _Step(result, timer))
        else:
            _write_decoder(case, cache, staging, options, _Step(result, timer))
        result.bytes = sum(path.stat().st_size for path in staging.glob(f"{MODEL_FILE}*"))
        with timer("configuration", "writing configuration and tokenizer"):
            _write_companions(model, case, staging)
            if options.runtime == "transformers.js":
                arrange_for_transformers_js(staging)
        result.seconds = dict(timer.seconds)
        (staging / REPORT).write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    return result


def plan(model: str, output: str | os.PathLike[str], options: FolderOptions = FolderOptions()) -> dict[str, str]:
    """What `export_model` would do, line by line: all that can be refused without an export is found out.

    Raises:
        ExportGuardError: as `export_model` does.
    """
    require_free(Path(output))
    case = case_of_program(model) if is_program(model) else build_model(model, options.build)
    _require_runtime(case, options)
    cache = _generation_cache(case, options)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in case.model.parameters())
    count = sum(parameter.numel() for parameter in case.model.parameters())
    if cache is not None and options.runtime == "genai":
        genai.genai_config(case.model, shapes_of(cache), MODEL_FILE, ())
    kept = "keys and values that grow" if cache is not None else "what its own code takes"
    bits = f", then {options.quantize.bits} bits ({options.quantize.form})" if options.quantize is not None else ""
    return {
        "folder": str(output),
        "model": f"{model}, {case.task.name}, {count:,} parameters, {weights / 2**20:,.1f} MiB{bits}",
        "runtime": options.runtime,
        "inputs": kept,
        "verify": "compared with eager before the folder appears" if options.verify else "nothing is run",
    }


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
        if options.runtime != "onnxruntime":
            raise
        logger.info("the file takes the states of the model's own cache: %s", error)
        return None


def _write_decoder(case: ModelCase, cache: Any, staging: Path, options: FolderOptions, step: _Step) -> None:
    # Before the export, which leaves the model as it is, so that nothing of it can explain a difference away.
    prompts = _prompts(case, options, step.timer)
    with step.timer("export", "exporting and converting"):
        onnx_model = decoder_to_onnx(case.model, cache, opset=options.opset)
    with step.timer("save", "writing the weights"):
        onnx_model.describe(made_with())
        onnx_model.save(staging / MODEL_FILE)
    step.result.node_count = onnx_model.node_count
    shapes, dtype = shapes_of(cache), _dtype(cache)
    step.result.inputs = [value.name for value in onnx_model.inputs]
    step.result.outputs = [value.name for value in onnx_model.outputs]
    if prompts is not None:
        with step.timer("compare", "generating with onnxruntime"):
            step.result.comparisons = compare_generation(staging / MODEL_FILE, shapes, prompts, dtype)
        _require_agreement(case.name, step.result.comparisons)
    _quantize(staging, options, step)
    if prompts is not None and options.quantize is not None:
        with step.timer("agreement", "generating with the quantized file"):
            step.result.agreement = asdict(agreement(staging / MODEL_FILE, shapes, prompts, dtype))
        _require_numbers(case.name, step.result.agreement)
    if prompts is not None:
        record(staging, calls_of_generation(staging / MODEL_FILE, shapes, prompts, dtype))
    if options.runtime == "genai":
        expected = None if prompts is None else prompts.tokens[0]
        if prompts is not None and options.quantize is not None:
            expected = generated_by(staging / MODEL_FILE, shapes, prompts, dtype)
        _write_genai(case, shapes, staging, expected, step)


def _quantize(staging: Path, options: FolderOptions, step: _Step) -> None:
    if options.quantize is not None:
        with step.timer("quantize", f"quantizing the weights to {options.quantize.bits} bits"):
            step.result.quantization = quantize_file(staging / MODEL_FILE, options.quantize)


def _require_numbers(name: str, agreement: Mapping[str, float]) -> None:
    wrong = [measure for measure, value in agreement.items() if not math.isfinite(value)]
    if wrong:
        raise ExportGuardError(f"the quantized file of {name} gives no numbers ({', '.join(wrong)}); pass more bits")


def _dtype(cache: Any) -> torch.dtype:
    dtype: torch.dtype = cache.layers[0].keys.dtype
    return dtype


def _prompts(case: ModelCase, options: FolderOptions, timer: _Timer) -> Prompts | None:
    if not options.verify:
        return None
    with timer("eager", "generating with transformers"):
        return generated(case.model, sliding_window(case))


def _write_genai(
    case: ModelCase, cache: KeysAndValues, staging: Path, expected: torch.Tensor | None, step: _Step
) -> None:
    """`expected` are the tokens of one text, (prompt and new ones,)."""
    genai.write(staging, genai.genai_config(case.model, cache, MODEL_FILE, step.result.inputs))
    if expected is None:
        return
    if importlib.util.find_spec("onnxruntime_genai") is None:
        logger.warning("onnxruntime-genai is not installed: the folder was compared in onnxruntime alone")
        return
    with step.timer("genai", "generating with onnxruntime-genai"):
        runner = importlib.import_module("exportguard.runners.genai")
        tokens = runner.generate(staging, expected[:-NEW_TOKENS], len(expected))
    step.result.runtime_agrees = bool(torch.equal(tokens, expected))
    if not step.result.runtime_agrees:
        raise ExportGuardError(
            f"onnxruntime-genai generates {tokens.tolist()} and not {expected.tolist()} from the first "
            f"{len(expected) - NEW_TOKENS} tokens; nothing was written"
        )


def _write_other(case: ModelCase, staging: Path, options: FolderOptions, step: _Step) -> None:
    """Any other task: exported and compared as `exportguard validate` does."""
    settings = ValidateOptions(build=options.build, opset=options.opset, run=options.verify)
    with step.timer("export", "exporting, converting and comparing"):
        calls: list[dict[str, torch.Tensor]] = []
        report = validate_case(case, staging / MODEL_FILE, settings, calls=calls)
    if not report.ok:
        raise ExportGuardError(_why_not(report))
    if calls:
        record(staging, calls[:2])
    step.result.node_count = report.node_count
    step.result.inputs, step.result.outputs = list(report.inputs), list(report.outputs)
    step.result.comparisons = [output for one in report.sets for output in one.outputs]
    _quantize(staging, options, step)
    if calls and options.quantize is not None:
        compared = [output for one in compared_again(staging) for output in one.outputs]
        step.result.agreement = {"lowest_cosine": min((one.cosine for one in compared), default=1.0)}
        _require_numbers(case.name, step.result.agreement)
        record(staging, calls[:2])


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
    if not hasattr(model, "config"):
        return  # a module of the user's own
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
        **_quantized(result),
        "seconds": ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.seconds.items()),
    }


def _quantized(result: ExportedFolder) -> dict[str, str]:
    done = result.quantization
    if done is None:
        return {}
    measured = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in result.agreement.items())
    share = done.bytes_after / max(done.bytes_before, 1)
    counted = f"{done.quantized} of {done.products} products, {share:.0%} of the bytes"
    return {"quantized": f"{counted}{': ' if measured else ''}{measured}"}
