"""Exports a model with what a runtime needs beside it, proves the folder in that runtime, and only then shows it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from exportguard.arguments import path_of, require_callable, require_kind, wrong
from exportguard.devices import threads_for
from exportguard.errors import REFUSALS, ExportGuardError, InvalidArgumentError
from exportguard.garbage import without_collections, without_full_collections
from exportguard.models import ModelCase, build_model
from exportguard.models.wide_modules import is_kept, wide_modules
from exportguard.opsets import checked_opset
from exportguard.validation.own_module import case_of_program, is_program
from exportguard.wide_ends import WideEnds

from . import genai
from .companions import write_companions
from .decoder import shapes_of
from .digests import digests_of
from .encoder_decoder import Source
from .layout import MODEL_FILE, arrange_for_transformers_js
from .outcome import ExportedFolder, FolderOptions, Progress, Step, Timer
from .pictures import Pictures
from .shards import split_data
from .staging import REPORT, require_free, staged_folder
from .writers import parts_of, write_files

_GENAI_TASKS = ("text-generation", "automatic-speech-recognition", "image-text-to-text")
_LISTED = 8  # names in a line
_ROWS = 16  # tokens of a call of a model that generates: each is multiplied with about every weight


@without_full_collections()  # what loads a model is imported here
def export_model(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: FolderOptions = FolderOptions(),
    progress: Progress = lambda step: None,
) -> ExportedFolder:
    """Writes a folder with the model called `model` (an architecture, a local folder, a hub id, or
    `path/file.py:function`).

    It holds `model.onnx` (large weights beside it), the configuration, the tokenizer or processor where the model has
    one, for onnxruntime-genai its `genai_config.json`, and a report of what was compared and with which versions. The
    folder appears under its name when everything is done.

    Raises:
        InvalidArgumentError: no such model or task, or a model that the runtime cannot keep the state of.
        FileError: the folder is taken or cannot be written, found out before the work.
        ExportGuardError: what was exported does not compute what the model computes; nothing is left behind.
    """
    target = path_of("output", output)
    require_kind("options", options, FolderOptions, "exportguard.FolderOptions")
    require_callable("progress", progress)
    require_free(target)
    options = _as_wanted(options)
    timer = Timer(progress)
    with timer("load", "loading the model"):
        case = _case_of(model, options)
    _require_runtime(case, options)
    with staged_folder(target) as staging:
        result = ExportedFolder(folder=str(target), model=str(model), task=case.task.name, runtime=options.runtime)
        result.opset = checked_opset(options.opset)
        kept = wide_modules(case.model, options.build.keep_float32)
        result.dtype, result.kept_float32 = _dtype_of(case.model, kept), sorted(kept)
        result.parameters = sum(parameter.numel() for parameter in case.model.parameters())
        with timer("configuration", "writing configuration and tokenizer"):
            write_companions(str(model), case, staging)  # first: what cannot be written is found out before the work
        ends = WideEnds(options.build.float32_io)
        with threads_for(_ROWS * result.parameters if case.task.cached else sys.maxsize):
            write_files(case, parts_of(case, options), staging, options, Step(result, timer, ends))
        result.float32_io = list(dict.fromkeys(ends.widened))
        if options.shard_size is not None:
            for name in result.files:
                split_data(staging / name, options.shard_size)
        result.bytes = sum(path.stat().st_size for name in result.files for path in staging.glob(f"{name}*"))
        if options.runtime == "transformers.js":
            arrange_for_transformers_js(staging, result.files)
        with timer("digests", "summing up the files"):  # if what they give is known as well
            result.sha256 = digests_of(staging, are_summed=options.verify)
        result.seconds = dict(timer.seconds)
        (staging / REPORT).write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    return result


def plan(
    model: str | os.PathLike[str], output: str | os.PathLike[str], options: FolderOptions = FolderOptions()
) -> dict[str, str]:
    """What `export_model` would do, line by line: all that can be refused without an export is found out.

    Raises:
        ExportGuardError: as `export_model` does.
    """
    require_free(path_of("output", output))
    case = _case_of(model, options)
    _require_runtime(case, options)
    parts = parts_of(case, options)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in case.model.parameters())
    count = sum(parameter.numel() for parameter in case.model.parameters())
    if parts is not None and not isinstance(parts, Source | Pictures) and options.runtime == "genai":
        genai.genai_config(case.model, shapes_of(parts), MODEL_FILE, ())
    bits = f", then {options.quantize.bits} bits ({options.quantize.form})" if options.quantize is not None else ""
    return {
        "folder": str(output),
        "model": f"{model}, {case.task.name}, {count:,} parameters, {weights / 2**20:,.1f} MiB{bits}",
        "runtime": options.runtime,
        "inputs": _form(parts),
        "verify": "compared with eager before the folder appears" if options.verify else "nothing is run",
    }


def _as_wanted(options: FolderOptions) -> FolderOptions:
    """With the inputs and outputs that a runtime wants: transformers.js makes its pictures and caches in float32."""
    build = options.build
    if options.runtime != "transformers.js" or build.dtype not in (torch.float16, torch.bfloat16) or build.float32_io:
        return options
    return replace(options, build=replace(build, float32_io=("*",)))


def _case_of(model: str | os.PathLike[str], options: FolderOptions) -> ModelCase:
    if not isinstance(model, str | os.PathLike):
        raise wrong(
            "model", model, "the name of one: a folder, a hub id, an architecture, or path/file.py:function for a "
            "module (exportguard.to_onnx converts one that is at hand)"
        )  # fmt: skip
    name = os.fspath(model)
    if is_program(name):
        return case_of_program(name, options.build)
    try:
        with without_collections():  # transformers is imported here, and weights are in no circle
            return build_model(name, options.build)
    except (*REFUSALS, ArithmeticError) as error:  # of the code of a model, which has no errors of its own
        if isinstance(error, ExportGuardError):
            raise
        task = f" for {options.build.task}" if options.build.task else ""
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InvalidArgumentError(
            f"{name} cannot be built{task}: {reason}; pass another task (-t), or path/file.py:function that builds it"
        ) from error


def _dtype_of(model: torch.nn.Module, kept: Mapping[str, torch.nn.Module]) -> str:
    """Of most of the weights that are not kept wide; that of torch where there are none."""
    counts: Counter[torch.dtype] = Counter({torch.get_default_dtype(): 0})
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not is_kept(name, kept):
            counts[parameter.dtype] += parameter.numel()
    return str(counts.most_common(1)[0][0]).removeprefix("torch.")


def _form(parts: object) -> str:
    if parts is None:
        return "what its own code takes"
    kept = "keys and values that grow"
    if isinstance(parts, Pictures):
        return f"what sees, what embeds, and a decoder with {kept}"
    return f"an encoder, and a decoder with {kept}" if isinstance(parts, Source) else kept


def _require_runtime(case: ModelCase, options: FolderOptions) -> None:
    if options.runtime == "genai" and case.task.name not in _GENAI_TASKS:
        raise InvalidArgumentError(
            f"onnxruntime-genai folders are for {' and '.join(_GENAI_TASKS)}, and {case.name} is exported for "
            f"{case.task.name}; pass another runtime or task"
        )


def summary(result: ExportedFolder) -> Mapping[str, str]:
    """What a person wants to know of a folder, line by line."""
    compared = f"{len(result.comparisons)} outputs agree with eager" if result.comparisons else "nothing was compared"
    runtime = {None: "", True: ", its runtime generates the same tokens", False: ""}[result.runtime_agrees]
    return {
        "folder": result.folder,
        "model": f"{result.model}, {result.task}, {result.parameters:,} parameters, {result.node_count} nodes",
        "inputs": _listed(result.inputs),
        **({"left out": f"{_listed(result.left_out)}, which forward takes as well"} if result.left_out else {}),
        "verified": compared + runtime,
        **_quantized(result),
        "seconds": ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.seconds.items()),
    }


def _listed(names: Sequence[str]) -> str:
    """The first names of many: a cache has two for each layer.

    >>> _listed(["a", "b"]), _listed([str(number) for number in range(90)])
    ('a, b', '0, 1, 2, 3, 4, … 89 (90 in all)')
    """
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:5])}, … {names[-1]} ({len(names)} in all)"


def _quantized(result: ExportedFolder) -> dict[str, str]:
    done = result.quantization
    if done is None:
        return {}
    measured = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in result.agreement.items())
    share = done.bytes_after / max(done.bytes_before, 1)
    counted = f"{done.quantized} of {done.products} products, {share:.0%} of the bytes"
    return {"quantized": f"{counted}{': ' if measured else ''}{measured}"}
