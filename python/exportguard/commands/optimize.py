"""Optimize an ONNX file of any producer; what stood at the output before stays until the new file is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..command_line import argument
from ..onnx_model import load, require_writable
from ..optimization import Target


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard optimize`."""

    model: Path = argument(help="The file to read.")
    output: Path = argument("-o", "--output", help="The file to write; weights above 16 MB go to one beside it.")
    runtime: Target = argument(
        "--for",
        help="What will run it: operators of the standard alone, what onnxruntime has beside, a cache in one buffer.",
        default="portable",
        choices=("portable", "onnxruntime", "onnxruntime-genai"),
    )
    positions: int | None = argument(
        "--positions",
        help="The most that a text has: with --for onnxruntime-genai attention has tables of rotations.",
        default=None,
    )
    inline: bool = argument("--inline/--no-inline", help="Write local functions out first.", default=False)
    report: bool = argument("--report/--no-report", help="A line for each pattern that did something.", default=False)
    verbose: int = argument("-v", "--verbose", help="0: nothing but errors; 1: the totals.", default=1)


def run(options: Options) -> int:
    """Reads, optimizes and writes."""
    output = require_writable(options.output, "output")
    model = load(options.model)
    model.infer_types()
    report = model.optimize(target=options.runtime, inline_functions=options.inline, positions=options.positions)
    model.save(output)
    if options.report:
        click.echo(str(report))
    elif options.verbose:
        click.echo(str(report).splitlines()[-1])
    return 0
