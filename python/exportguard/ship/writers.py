"""Writes and proves the files of a model: a decoder, an encoder and a decoder, or one file for whatever else it is."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from exportguard.errors import ExportGuardError, InvalidArgumentError
from exportguard.models import ModelCase
from exportguard.models.input_sets import sliding_window
from exportguard.models.natural_inputs.pixels import has_several_sizes
from exportguard.onnx_model import OnnxModel
from exportguard.optimization import Optimize
from exportguard.request import ExportOptions
from exportguard.validation.discrepancies import BLIND, Discrepancy
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case
from exportguard.version import made_with

from . import genai
from .any_size import of_any_size
from .decoder import decoder_to_onnx, plain_cache, shapes_of
from .encoder_decoder import ENCODER_FILE, Source, encoder_to_onnx, source_of
from .encoder_decoder import decoder_to_onnx as merged_decoder_to_onnx
from .generation import (
    Prompts,
    agreement,
    agreement_of,
    compare_generation,
    generated,
    generated_by,
)
from .layout import MODEL_FILE
from .left_out import left_out
from .outcome import FolderOptions, Step, Timer
from .pictures import (
    EMBEDDING_FILE,
    VISION_FILE,
    Calls,
    Pictures,
    compare_writing,
    embedding_to_onnx,
    genai_parts,
    one_text,
    pictures_of,
    steps,
    vision_to_onnx,
    writing_to_onnx,
    written_by_model,
)
from .quantization import Quantization, QuantizationReport, quantize_file
from .recorded import Feeds, calls_again, compared_again, record
from .sessions import Call, fitting, needs_packed_weights, session_of
from .speech import speech_config, speech_decoder_to_onnx, speech_encoder_to_onnx, speech_source
from .targets import (
    Targets,
    agreement_with_targets,
    compare_targets,
    recorded,
    targets_of,
    written_by,
)

logger = logging.getLogger(__name__)

#: Beside what a model cannot be called without; the classes of optimum and transformers.js do not know of the others.
_GIVEN_BY_LOADERS = ("token_type_ids",)
_GENERATION, _PICTURES = "text-generation", "image-text-to-text"


def parts_of(case: ModelCase, options: FolderOptions) -> Any:
    """What generation loops keep of the model: the cache of a decoder, the `Source` of an encoder and a decoder, or
    None where the model is written as its own code calls it.

    Raises:
        InvalidArgumentError: the runtime needs such parts and the model does not come in them.
    """
    config = getattr(case.model, "config", None)
    is_translator = case.task.cached and bool(getattr(config, "is_encoder_decoder", False))
    if case.task.name == _PICTURES and options.runtime == "genai":
        return pictures_of(case)
    if case.task.name == _PICTURES and options.runtime != "onnxruntime":
        raise InvalidArgumentError(
            f"{case.name} writes texts about pictures, which {options.runtime} loads in parts that are not made here; "
            "export it for onnxruntime, in one file, or for genai"
        )
    if case.task.name != _GENERATION and not is_translator:
        return None
    try:
        if not is_translator:
            return plain_cache(case.model)
        source = source_of(case)
        return speech_source(case, source) if options.runtime == "genai" else source
    except InvalidArgumentError as error:
        if options.runtime != "onnxruntime":
            raise
        logger.info("the file takes the states of the model's own cache: %s", error)
        return None


def write_files(case: ModelCase, parts: object, staging: Path, options: FolderOptions, step: Step) -> None:
    """Writes what `parts_of` told.

    Raises:
        ExportGuardError: what was written does not compute what the model computes.
    """
    if parts is None:
        _write_other(case, staging, options, step)
    elif isinstance(parts, Pictures):
        _write_pictures(case, parts, staging, options, step)
    elif isinstance(parts, Source):
        _write_encoder_decoder(case, parts, staging, options, step)
    else:
        _write_decoder(case, parts, staging, options, step)


# ------------------------------------------------------------------------------------------------------ a decoder


def _write_decoder(case: ModelCase, cache: object, staging: Path, options: FolderOptions, step: Step) -> None:
    # Before the export, which leaves the model as it is, so that nothing of it can explain a difference away.
    prompts = _prompts(case, options, step.timer)
    optimize: Optimize = "onnxruntime-genai" if options.runtime == "genai" else True
    with step.timer("export", "exporting and converting"):
        positions = genai.context_length(case.model) if options.runtime == "genai" else None
        onnx_model = decoder_to_onnx(
            case.model, cache, opset=options.opset, options=ExportOptions(positions=positions), optimize=optimize
        )
    _save(onnx_model, staging / MODEL_FILE, step)
    step.ends.require_used()
    shapes, dtype = shapes_of(cache), _dtype(cache)
    calls: list[Call] = []
    if prompts is not None:
        with step.timer("compare", "generating with onnxruntime"):
            step.result.comparisons = compare_generation(staging / MODEL_FILE, shapes, prompts, dtype, calls)
        _require_agreement(case.name, step.result.comparisons)

    _quantize(staging, options, step, _inputs_of({MODEL_FILE: calls}))
    if prompts is not None and options.quantize is not None:
        with step.timer("agreement", "generating with the quantized file"):
            step.result.agreement = asdict(agreement(staging / MODEL_FILE, shapes, prompts, dtype))
        _require_numbers(case.name, step.result.agreement)
    if prompts is not None:
        _record(staging, options, {MODEL_FILE: calls})

    if options.runtime == "genai":
        _tell_what_genai_lacks(case.model)
        config = genai.genai_config(case.model, shapes, MODEL_FILE, step.result.inputs)
        config["search"]["past_present_share_buffer"] = onnx_model.keeps_caches_in_one_buffer
        genai.write(staging, config)
        if prompts is not None:
            _compare_in_genai(prompts, cache, staging, options, step)


def _tell_what_genai_lacks(model: Any) -> None:
    names = genai.unwritten(model.generation_config)
    if names:
        logger.warning(
            "%s of generation_config.json are not in genai_config.json: ask the runtime for them (search options), or "
            "it generates other texts than transformers",
            ", ".join(names),
        )
    length = genai.length_of_other_frequencies(model.config.get_text_config())
    if length is not None:
        logger.warning(
            "beyond %d tokens all positions have other frequencies (longrope): transformers makes the cache anew where "
            "a text grows beyond them and onnxruntime-genai does not, so such texts go on otherwise; those whose "
            "prompt is longer do not",
            length,
        )


def _dtype(cache: Any) -> torch.dtype:
    dtype: torch.dtype = cache.layers[0].keys.dtype
    return dtype


def _prompts(case: ModelCase, options: FolderOptions, timer: Timer) -> Prompts | None:
    if not options.verify:
        return None
    with timer("eager", "generating with transformers"):
        if options.runtime == "genai":  # it has no padding: texts of a batch are of one length
            config: Any = case.model.config
            tokens = genai.special_tokens(config.get_text_config(), case.model.generation_config)
            return generated(case.model, sliding_window(case), shorter=0, ends=tokens["eos_token_id"])
        return generated(case.model, sliding_window(case))


def _compare_in_genai(prompts: Prompts, cache: object, staging: Path, options: FolderOptions, step: Step) -> None:
    """In one batch of two texts as long as each other; a quantized file with what it generates in onnxruntime."""
    if not _is_genai_installed():
        return
    with step.timer("genai", "generating with onnxruntime-genai"):
        expected = prompts.tokens
        if options.quantize is not None:
            expected = generated_by(staging / MODEL_FILE, shapes_of(cache), prompts, _dtype(cache))
        tokens = _in_genai(staging, MODEL_FILE, prompts.input_ids, expected.shape[1])
    _require_tokens(tokens, expected, prompts.input_ids.shape[1], step)


def _in_genai(
    staging: Path,
    decoder: str,
    input_ids: torch.Tensor,
    length: int,
    others: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> torch.Tensor:
    runner = importlib.import_module("exportguard.runners.genai")
    packs = needs_packed_weights(staging / decoder)
    tokens: torch.Tensor = runner.generate(staging, input_ids, length, others, packs_weights=packs)
    return tokens


def _is_genai_installed() -> bool:
    if importlib.util.find_spec("onnxruntime_genai") is not None:
        return True
    logger.warning("onnxruntime-genai is not installed: the folder was compared in onnxruntime alone")
    return False


def _require_tokens(tokens: torch.Tensor, expected: torch.Tensor, given: int, step: Step) -> None:
    step.result.runtime_agrees = bool(torch.equal(tokens, expected))
    if not step.result.runtime_agrees:
        row = next(row for row in range(len(expected)) if not torch.equal(tokens[row], expected[row]))
        raise ExportGuardError(
            f"onnxruntime-genai generates {tokens[row].tolist()} and not {expected[row].tolist()} from the first "
            f"{given} tokens; nothing was written"
        )


# ---------------------------------------------------------------------------------------- an encoder and a decoder


def _write_encoder_decoder(case: ModelCase, source: Source, staging: Path, options: FolderOptions, step: Step) -> None:
    targets = None
    if options.verify:
        with step.timer("eager", "running the model"):
            targets = targets_of(case.model, source)
    is_speech = options.runtime == "genai"
    with step.timer("export", "exporting and converting the encoder"):
        to_encoder = speech_encoder_to_onnx if is_speech else encoder_to_onnx
        encoder = to_encoder(case.model, source, opset=options.opset)
    _save(encoder, staging / ENCODER_FILE, step)
    with step.timer("export decoder", "exporting and converting the decoder"):
        to_decoder = speech_decoder_to_onnx if is_speech else merged_decoder_to_onnx
        decoder = to_decoder(case.model, source, opset=options.opset)
    _save(decoder, staging / source.decoder_file, step)
    step.ends.require_used()
    calls: dict[str, list[Call]] = {}
    if targets is not None:
        with step.timer("compare", "running both files in onnxruntime"):
            step.result.comparisons = compare_targets(staging, source, targets, calls)
        _require_agreement(case.name, step.result.comparisons)

    _quantize(staging, options, step, _inputs_of(calls))
    if targets is not None and options.quantize is not None:
        with step.timer("agreement", "running the quantized files"):
            step.result.agreement = asdict(agreement_with_targets(staging, source, targets))
        _require_numbers(case.name, step.result.agreement)
    if targets is not None:
        _record(staging, options, calls)

    if is_speech:
        genai.write(staging, speech_config(case.model, source))
        if targets is not None:
            _compare_speech_in_genai(staging, source, targets, options, step)


def _compare_speech_in_genai(
    staging: Path, source: Source, targets: Targets, options: FolderOptions, step: Step
) -> None:
    """From the first token on, for the recordings of a batch; a quantized file with what it writes in onnxruntime."""
    if not _is_genai_installed():
        return
    with step.timer("genai", "generating with onnxruntime-genai"):
        expected = targets.tokens if options.quantize is None else written_by(staging, source, targets)
        starts, length = expected[:, :1], expected.shape[1]
        tokens = _in_genai(staging, source.decoder_file, starts, length, recorded(staging, targets))
    _require_tokens(tokens, expected, 1, step)


# ---------------------------------------------------------------------------------------------- pictures and texts


def _write_pictures(case: ModelCase, parts: Pictures, staging: Path, options: FolderOptions, step: Step) -> None:
    written = None
    if options.verify:
        with step.timer("eager", "running the model"):
            written = written_by_model(case.model, parts)
    for name, to_part in (
        (VISION_FILE, vision_to_onnx), (EMBEDDING_FILE, embedding_to_onnx), (MODEL_FILE, writing_to_onnx)
    ):  # fmt: skip
        with step.timer(f"export {Path(name).stem}", f"exporting and converting {name}"):
            part = to_part(case.model, parts, opset=options.opset)
        _save(part, staging / name, step)
    step.ends.require_used()
    if written is not None:
        with step.timer("compare", "running the three files in onnxruntime"):
            calls: Calls = {}
            got = list(steps(staging, parts, written, calls))
            step.result.comparisons = compare_writing(parts, written, got)
        _require_agreement(case.name, step.result.comparisons)

    _quantize(staging, options, step, calls if written is not None else {})
    if written is not None and options.quantize is not None:
        with step.timer("agreement", "running the quantized files"):
            got = list(steps(staging, parts, written))
            step.result.agreement = asdict(agreement_of(written.logits, got))
        _require_numbers(case.name, step.result.agreement)
    if written is not None:
        record(staging, calls_again(staging, calls))

    shapes = shapes_of(parts.cache)
    genai.write(staging, genai.genai_config(case.model, shapes, MODEL_FILE, step.result.inputs, genai_parts()))
    if written is not None and options.quantize is None and _is_genai_installed():
        with step.timer("genai", "generating with onnxruntime-genai"):
            ids, pixels = one_text(parts)
            expected = written.tokens[:1]
            seen = {
                **fitting(session_of(staging / VISION_FILE), {"pixel_values": pixels}),
                "num_image_tokens": (ids == parts.token).sum().reshape(1),
            }
            tokens = _in_genai(staging, MODEL_FILE, ids, expected.shape[1], seen)
        _require_tokens(tokens, expected, ids.shape[1], step)


# -------------------------------------------------------------------------------------------------- any other model


def _write_other(case: ModelCase, staging: Path, options: FolderOptions, step: Step) -> None:
    """Exported and compared as `exportguard validate` does."""
    if options.runtime != "onnxruntime":
        case = replace(case, handed_over=_GIVEN_BY_LOADERS)
    with step.timer("export", "exporting, converting and comparing"):
        case, report, calls = _validated(case, staging, options)
    if not report.ok:
        raise ExportGuardError(_why_not(report))
    if calls:
        record(staging, calls_again(staging, {MODEL_FILE: calls[:2]}))
    step.result.files = [MODEL_FILE]
    step.result.node_count = report.node_count
    step.result.inputs, step.result.outputs = list(report.inputs), list(report.outputs)
    step.result.left_out = left_out(case.model, case.inputs(case.task.sizes))
    if step.result.left_out:
        logger.warning(
            "the file has no input for %s, which forward takes as well: it computes what the model does without",
            ", ".join(step.result.left_out),
        )
    step.result.comparisons = [output for inputs in report.sets for output in inputs.outputs]
    step.ends.widened += report.float32_io

    _quantize(staging, options, step, {MODEL_FILE: calls})
    if calls and options.quantize is not None:
        compared = [output for inputs in compared_again(staging) for output in inputs.outputs]
        step.result.agreement = {"lowest_cosine": min((output.cosine for output in compared), default=1.0)}
        _require_numbers(case.name, step.result.agreement)
        record(staging, calls_again(staging, {MODEL_FILE: calls[:2]}))


def _validated(
    case: ModelCase, staging: Path, options: FolderOptions
) -> tuple[ModelCase, ValidationReport, list[dict[str, torch.Tensor]]]:
    """What was exported, pictures of any size if that can be, how it compares, and what its file was given."""
    settings = ValidateOptions(build=options.build, opset=options.opset, run=options.verify)
    sized = of_any_size(case)
    for each in [case] if sized is None else [sized, case]:
        calls: list[dict[str, torch.Tensor]] = []
        # Ways for sizes of pictures take long to find, and few models have some that can be told apart.
        how = settings if each is case else replace(settings, rewrite=False)
        report = validate_case(each, staging / MODEL_FILE, how, calls=calls)
        if report.ok or each is case:
            break
        logger.info("the file takes pictures of one size: %s", _why_not(report))
    if each is case and has_several_sizes(getattr(case.model, "config", None)):
        logger.warning(
            "the processor of %s makes pictures of several sizes, and the file has one; for another one pass "
            "path/file.py:function with inputs of it",
            case.name,
        )
    return each, report, calls


def _why_not(report: ValidationReport) -> str:
    if report.failure:
        return f"{report.model} was not exported: {report.failure}"
    fixed = [str(axis) for axis in report.axes if not axis.kept]
    if fixed:
        return f"{report.model} was not exported: {'; '.join(fixed)}"
    wrong = [f"{compared.name}: {compared.error or 'other numbers'}" for compared in report.sets if not compared.agrees]
    return f"{report.model} was not exported: its file differs from eager ({'; '.join(wrong)})"


# --------------------------------------------------------------------------------------------------------- steps


def _save(model: OnnxModel, path: Path, step: Step) -> None:
    with step.timer(f"save {path.stem}", f"writing {path.name}"):
        step.ends.apply(model)
        model.describe(made_with())
        model.save(path)
    step.result.files.append(path.name)
    step.result.node_count += model.node_count
    step.result.inputs = [value.name for value in model.inputs]
    step.result.outputs = [value.name for value in model.outputs]


def _inputs_of(calls: Mapping[str, Sequence[Call]]) -> dict[str, list[Feeds]]:
    return {name: [call.inputs for call in of_file] for name, of_file in calls.items()}


def _record(staging: Path, options: FolderOptions, calls: Mapping[str, Sequence[Call]]) -> None:
    """What the files returned when they were compared, or what they return now that they are quantized."""
    record(staging, calls if options.quantize is None else calls_again(staging, _inputs_of(calls)))


def _quantize(staging: Path, options: FolderOptions, step: Step, calls: Mapping[str, Sequence[Feeds]]) -> None:
    """`calls` are examples for what is calibrated; they are those that the file was compared on, by its name."""
    if options.quantize is None:
        return
    with step.timer("quantize", f"quantizing the weights to {options.quantize.bits} bits"):
        given = {**calls, **({MODEL_FILE: options.examples} if options.examples else {})}
        done = [quantize_file(staging / name, options.quantize, given.get(name, ())) for name in step.result.files]
    if not any(part.quantized for part in done):
        raise InvalidArgumentError(f"nothing was quantized: {_why_none(done, options.quantize, step.result.model)}")
    step.result.quantization = QuantizationReport(
        quantized=sum(part.quantized for part in done),
        products=sum(part.products for part in done),
        bytes_before=sum(part.bytes_before for part in done),
        bytes_after=sum(part.bytes_after for part in done),
    )


def _why_none(done: Sequence[QuantizationReport], how: Quantization, model: str) -> str:
    products = sum(part.products for part in done)
    if not products:
        return f"{model} has no products with weights; leave the quantization out"
    beside = ", beside values that are numbers in all examples" if how.form == "QDQ" else ""
    return f"of {products} products with weights in {model} none has weights that are numbers{beside}; see to these"


def _require_numbers(name: str, agreement: Mapping[str, float]) -> None:
    wrong = [measure for measure, value in agreement.items() if not math.isfinite(value)]
    if wrong:
        raise ExportGuardError(f"the quantized file of {name} gives no numbers ({', '.join(wrong)}); pass more bits")


def _require_agreement(name: str, comparisons: Sequence[Discrepancy]) -> None:
    wrong = [comparison for comparison in comparisons if not comparison.agrees]
    if wrong:
        first = wrong[0]
        if first.problem == BLIND:
            raise ExportGuardError(f"{name}, {first.name}: {BLIND}; see that its weights are numbers")
        what = (
            first.problem or f"largest difference {first.max_absolute:.2g}, {first.share_over:.1%} over the tolerance"
        )
        raise ExportGuardError(f"the file of {name} does not generate what the model does: {first.name}: {what}")
