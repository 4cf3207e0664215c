"""The table of models in the README: what was converted and compared, on this machine, with these versions.

python benchmarks/model_table.py                       # prints it
python benchmarks/model_table.py --write README.md     # puts it between the markers of the file
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from sections import markdown_table, write_section

from exportguard.models import BuildOptions, architectures
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_model, versions

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SETS = ("traced", "other sizes", "batch 1", "empty past", "past beyond the window")
HEADER = ("model", "dtype", "nodes", "axes kept", *SETS, "largest difference", "run in")


def reports(names: Sequence[str], dtypes: Sequence[str]) -> Iterator[ValidationReport]:
    """One validation for each model and dtype, in the evaluator where onnxruntime has no kernels."""
    for name in names:
        for dtype in dtypes:
            options = ValidateOptions(build=BuildOptions(dtype=DTYPES[dtype]))
            report = validate_model(name, options)
            yield validate_model(name, replace(options, runner="evaluator")) if has_no_kernel(report) else report


def row(report: ValidationReport) -> list[str]:
    """The cells of one validation."""
    kept = sum(axis.kept for axis in report.axes)
    differences = [output.max_absolute for one in report.sets for output in one.outputs]
    cells = [report.model.rpartition("/")[2], report.dtype, str(report.node_count), f"{kept} of {len(report.axes)}"]
    largest = f"{max(differences):.1e}" if differences else report.failure.split("\n")[0][:80]
    return [*cells, *(set_cell(report, name) for name in SETS), largest, report.runner]


def has_no_kernel(report: ValidationReport) -> bool:
    """Whether it was converted, but onnxruntime cannot run one of its operators in that dtype."""
    return "onnxruntime has no kernel" in report.failure


def set_cell(report: ValidationReport, name: str) -> str:
    """Whether the sets of that name agree; empty for a model that has none."""
    results = [one for one in report.sets if one.name.startswith(name)]
    if not results:
        return "" if not report.failure else "failed"
    return "agrees" if all(one.agrees for one in results) else "differs"


def table(results: Sequence[ValidationReport]) -> str:
    """Markdown, with the versions that it holds for."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if version != "not installed")
    rows = [row(report) for report in results]
    return f"{markdown_table(HEADER, rows)}\nMade by `make table` with {used}.\n"


def main() -> None:
    """Validates the models and prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(architectures()))
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--write", type=Path, default=None, help="a file with the markers")
    options = parser.parse_args()
    logging.getLogger("exportguard").setLevel(logging.ERROR)
    console = Console(stderr=True)
    results = []
    with console.status("validating") as status:
        for report in reports(options.models, options.dtypes):
            results.append(report)
            status.update(f"{report.model} ({report.dtype}): {'ok' if report.ok else 'not ok'}")
    text = table(results)
    if options.write:
        write_section(options.write, "models", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
