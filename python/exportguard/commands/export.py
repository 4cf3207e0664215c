"""Export a model to a folder that a runtime loads, compared with the original before it appears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import torch
from rich.console import Console

from ..command_line import argument
from ..models import BuildOptions, tasks
from ..opsets import opset_of
from ..progress import telling
from ..ship import FolderOptions, export_model
from ..ship.calibration import examples_in
from ..ship.folder import plan, summary
from ..ship.outcome import Runtime
from ..ship.quantization import QUANTIZATIONS
from ..ship.shards import bytes_of

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard export`."""

    model: str = argument("-m", "--model", help="An architecture, a local folder, a hub id, or path/file.py:function.")
    output: Path = argument("-o", "--output", help="The folder to write; new, empty, or of an earlier export.")
    runtime: str = argument("--for", help="What will load it.", default="onnxruntime", choices=get_args(Runtime))
    task: str | None = argument("-t", "--task", help="What the model is for.", default=None, choices=tuple(tasks()))
    dtype: str = argument("--dtype", help="Of the weights.", default="float32", choices=tuple(_DTYPES))
    keep_float32: str | None = argument(
        "--keep-float32",
        help="Modules that stay wide in a float16 model, by name, with commas between: lm_head,*.norm",
        default=None,
    )
    float32_io: str | None = argument(
        "--float32-io",
        help="Inputs and outputs that are float32 all the same, by name: logits,pixel_values,past_key_values.*",
        default=None,
    )
    opset: str | None = argument("--opset", help="18 to 25, or newest: that runs here.", default="newest")
    quantize: str | None = argument(
        "--quantize",
        help="Bits of the weights and their operators.",
        default=None,
        choices=tuple(QUANTIZATIONS),
    )
    calibration: Path | None = argument(
        "--calibration",
        help="Inputs of model.onnx by name, a list of calls by torch.save, for int8-static.",
        default=None,
    )
    shard_size: str | None = argument(
        "--shard-size", help="Of the files that weights beside the model are cut into, 2GB for example.", default=None
    )
    dry_run: bool = argument("--dry-run", help="Load the model and tell what would be written.", default=False)
    verify: bool = argument("--verify/--no-verify", help="Run it and compare.", default=True)
    verbose: int = argument("-v", "--verbose", help="0: nothing but errors; 1: a summary.", default=1)


def run(options: Options) -> int:
    """Writes the folder and prints what is in it."""
    console = Console(stderr=False)
    settings = FolderOptions(
        build=BuildOptions(
            task=options.task,
            dtype=_DTYPES[options.dtype],
            keep_float32=_names(options.keep_float32),
            float32_io=_names(options.float32_io),
        ),
        runtime=cast(Runtime, options.runtime),
        opset=opset_of(options.opset),
        verify=options.verify,
        quantize=QUANTIZATIONS[options.quantize] if options.quantize else None,
        examples=examples_in(options.calibration) if options.calibration else (),
        shard_size=bytes_of(options.shard_size) if options.shard_size else None,
    )
    if options.dry_run:
        _print(plan(options.model, options.output, settings), console)
        return 0
    with telling(quiet=not options.verbose) as tell:
        result = export_model(options.model, options.output, settings, tell)
    if options.verbose:
        _print(summary(result), console)
    return 0


def _names(told: str | None) -> tuple[str, ...]:
    return tuple(told.split(",")) if told else ()


def _print(lines: Mapping[str, str], console: Console) -> None:
    for name, text in lines.items():
        console.print(f"{name:>9}  {text}", highlight=False, markup=False, soft_wrap=True)
