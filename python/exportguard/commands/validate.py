"""Export and convert a model, and compare it with the original on several sizes of its inputs.

`exportguard validate -m MODEL`, or `exportguard validate path/file.py:function`, where the function returns a module,
its inputs and its dynamic shapes. `exportguard validate FOLDER` runs what `exportguard export` wrote on the inputs that
it recorded, without the original.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from rich.console import Console

from ..command_line import argument
from ..errors import FileError, InvalidArgumentError
from ..models import DTYPES, BuildOptions, tasks
from ..onnx_model import require_writable
from ..opsets import opset_of
from ..progress import telling
from ..repeats.plan import checked_repeats
from ..ship.recorded import is_export, validate_export
from ..validation.tables import print_report
from ..validation.validate import Runner, ValidateOptions, ValidationReport, validate_model


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard validate`."""

    program: str = argument(
        help="path/file.py:function, which returns (module, inputs, dynamic_shapes); or a folder of `export`.",
        default="",
    )
    model: str | None = argument("-m", "--model", help="An architecture, a local folder, or a hub id.", default=None)
    run: bool = argument("--run/--no-run", help="Run the converted model and compare.", default=True)
    runner: str = argument(
        "--runner", help="What runs it.", default="onnxruntime", choices=("onnxruntime", "evaluator")
    )
    beside: str | None = argument(
        "--beside",
        help="Another runner for the same inputs, told apart.",
        default=None,
        choices=("onnxruntime", "evaluator"),
    )
    all_sizes: bool = argument("--all-sizes", help="Compare on every combination of sizes.", default=False)
    side_by_side: bool = argument(
        "--side-by-side", help="Look for the first node that makes a wrong value of right ones.", default=False
    )
    verbose: int = argument("-v", "--verbose", help="0: the result alone; 1: the tables; 2: every output.", default=1)
    export: str = argument(
        "--export", help="What converts the program.", default="exportguard", choices=("exportguard", "onnx-dynamo")
    )
    output: Path | None = argument("-o", "--output", help="A folder for the ONNX file.", default=None)
    task: str | None = argument("-t", "--task", help="What the model is for.", default=None, choices=tuple(tasks()))
    dtype: str = argument("--dtype", help="Of the weights.", default="float32", choices=tuple(DTYPES))
    device: str = argument("--device", help="cpu, cuda, cuda:1, …", default="cpu")
    patch: bool = argument("--patch/--no-patch", help="Export with the patches of the guard.", default=True)
    rewrite: bool = argument("--rewrite/--no-rewrite", help="Rewrite what stops the export at data.", default=True)
    repeats: str = argument(
        "--repeats", help="Blocks that repeat.", default="trace once", choices=("trace once", "trace all", "verify")
    )
    opset: str | None = argument("--opset", help="18 to 25, or newest: that runs here.", default="newest")
    json: Path | None = argument("--json", help="A file for the report.", default=None)


def run(options: Options) -> int:
    """Prints the report and returns 0 if everything agrees."""
    console = Console(stderr=False)
    model = options.model or options.program
    if not model or (options.model and options.program):
        raise InvalidArgumentError("pass a model, either -m MODEL or path/file.py:function")
    if is_export(model):
        _require_none_of_the_export(options)
    if options.beside == options.runner:
        raise InvalidArgumentError(f"--beside {options.beside} is the runner itself; pass another --runner or --beside")
    if options.json:
        require_writable(options.json, "--json")
    with telling(quiet=not options.verbose) as tell:
        if is_export(model):
            tell(f"running {model} on what was recorded with it")
            report = validate_export(Path(model), _runner(options.runner))
        else:
            report = validate_model(model, _settings(options), tell, lambda report: _kept(report, options.json))
    print_report(report, console, detail=options.verbose)
    _kept(report, options.json)
    return 0 if report.ok else 1


def _require_none_of_the_export(options: Options) -> None:
    """What `export` wrote is run as it is on what was recorded with it: other options would not be followed."""
    followed = ("program", "model", "runner", "verbose", "json")
    others = [
        (field.metadata["flags"] or (field.name,))[-1]
        for field in fields(Options)
        if field.name not in followed and getattr(options, field.name) != field.default
    ]
    if others:
        raise InvalidArgumentError(
            f"what `export` wrote is run as it is on what was recorded with it; leave {', '.join(others)} out"
        )


def _settings(options: Options) -> ValidateOptions:
    return ValidateOptions(
        build=BuildOptions(task=options.task, dtype=DTYPES[options.dtype], device=options.device),
        exporter="onnx-dynamo" if options.export == "onnx-dynamo" else "exportguard",
        opset=opset_of(options.opset),
        patch=options.patch,
        rewrite=options.rewrite,
        repeats=checked_repeats(options.repeats),
        run=options.run,
        runner=_runner(options.runner),
        beside=_runner(options.beside) if options.beside else None,
        all_sizes=options.all_sizes,
        side_by_side=options.side_by_side,
        folder=options.output,
    )


def _runner(name: str) -> Runner:
    return "evaluator" if name == "evaluator" else "onnxruntime"


def _kept(report: ValidationReport, path: Path | None) -> None:
    if path is None:
        return
    try:
        path.write_text(json.dumps(report.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write the report to {path}: {error.strerror}") from error
