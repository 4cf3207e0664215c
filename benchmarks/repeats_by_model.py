"""What was replayed and what was traced of each model type, and whether the model is that of tracing everything.

    python benchmarks/repeats_by_model.py                                  # prints a table; takes minutes
    python benchmarks/repeats_by_model.py --models llama bert --write docs/repeats.md

It ends with 1 if a model is another one than that of tracing everything.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from sections import markdown_table, write_section

from exportguard.models import architectures
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_model, versions

HEADER = ("model", "blocks", "calls replayed", "calls traced in blocks", "model")


def row(report: ValidationReport) -> list[str]:
    """The cells of one model."""
    counts = [str(report.repeats.get(name, 0)) for name in ("blocks", "replayed", "traced")]
    return [report.model, *counts, report.failure.splitlines()[0][:120] if report.failure else "the same"]


def table(reports: Sequence[ValidationReport]) -> str:
    """Markdown, with the versions that it holds for."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if version != "not installed")
    return f"{markdown_table(HEADER, [row(report) for report in reports])}\nMade with {used}.\n"


def main() -> int:
    """Verifies the models; 1 if one differs or cannot be converted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(architectures()))
    parser.add_argument("--write", type=Path, default=None, help="a file with the markers")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("exportguard").setLevel(logging.ERROR)
    reports = [validate_model(name, ValidateOptions(repeats="verify", run=False)) for name in options.models]
    text = table(reports)
    if options.write:
        write_section(options.write, "repeats", text)
    else:
        print(text)
    return 1 if any(report.failure for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
