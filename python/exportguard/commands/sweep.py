"""Validate many models, each in its own process; a second run into the same folder only does what is missing."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from ..command_line import argument
from ..errors import InvalidArgumentError
from ..models import DTYPES, tasks
from ..onnx_model import require_writable
from ..progress import telling
from ..sweep import SweepOptions, SweepResult, shipped_cases, sweep, sweep_cases
from ..sweep.beside import beside_summary
from ..sweep.ci import junit, lost, read_baseline, workflow_errors
from ..sweep.executors import executor_named
from ..sweep.tables import page, summary, terminal_table


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard sweep`."""

    folder: Path = argument("-o", "--output", help="A folder for results.json, results.html and what is done.")
    task: str | None = argument("-t", "--task", help="Only this task.", default=None, choices=tuple(tasks()))
    match: str = argument("-k", "--match", help="Only models with this, or that, in their names.", default="")
    shipped: bool = argument("--shipped", help="Only the architectures shipped as data.", default=False)
    executor: str = argument(
        "--executor", help="Where the models run: local, dask://HOST:PORT or ray://HOST:PORT.", default="local"
    )
    jobs: int = argument("-j", "--jobs", help="Processes at once; a cluster decides for itself.", default=1, least=1)
    timeout: float = argument("--timeout", help="Seconds for each model.", default=300.0, least=1)
    memory: int = argument("--memory", help="MiB for each model.", default=8192, least=1)
    patch: bool = argument("--patch/--no-patch", help="Export with the patches of the guard.", default=True)
    all_sizes: bool = argument("--all-sizes", help="Compare on every combination of sizes.", default=False)
    dtype: str = argument("--dtype", help="Of the weights.", default="float32", choices=tuple(DTYPES))
    beside: str | None = argument(
        "--beside",
        help="A runner beside onnxruntime, on the same files and inputs.",
        default=None,
        choices=("evaluator",),
    )
    junit: Path | None = argument("--junit", help="A file for the results in JUnit's form.", default=None)
    baseline: Path | None = argument(
        "--baseline", help="results.json of an earlier sweep: fail for what was right in it alone.", default=None
    )
    verbose: int = argument("-v", "--verbose", help="0: the summary alone; 1: the table.", default=1)


def run(options: Options) -> int:
    """Prints the table and returns 0 if every model that runs eagerly is right; of a baseline, what was right there."""
    console = Console()
    baseline = read_baseline(options.baseline) if options.baseline else None
    if options.junit:
        require_writable(options.junit, "--junit")
    if options.beside and options.dtype == "bfloat16":
        raise InvalidArgumentError("models of bfloat16 are run by the evaluator alone; leave --beside out")
    patterns = [pattern for pattern in options.match.split(",") if pattern]
    chosen = [options.task] if options.task else []
    cases = shipped_cases(chosen, patterns) if options.shipped else sweep_cases(chosen, patterns)
    settings = SweepOptions(
        folder=options.folder,
        timeout_s=options.timeout,
        memory_mib=options.memory,
        arguments=_arguments(options),
    )
    results: list[SweepResult] = []
    with telling(quiet=not options.verbose) as tell, executor_named(options.executor, options.jobs) as executor:
        for result in sweep(cases, settings, executor):
            results.append(result)
            tell(f"{len(results)} of {len(cases)}, last {result.model}: {result.outcome}")
    _write(results, options.folder)
    if options.junit:
        options.junit.write_text(junit(results), encoding="utf-8")
    if options.verbose:
        console.print(terminal_table(results))
    console.print(summary(results), *beside_summary(results), sep="\n")
    if baseline is not None:
        return _compared(lost(results, baseline), console)
    return 0 if all(result.outcome in ("ok", "cannot run eagerly") for result in results) else 1


def _arguments(options: Options) -> tuple[str, ...]:
    """What each validation is told."""
    switches = {"--no-patch": not options.patch, "--all-sizes": options.all_sizes}
    chosen = (switch for switch, is_on in switches.items() if is_on)
    # onnxruntime has no bfloat16 on a CPU for most operators.
    runner = ("--runner", "evaluator") if options.dtype == "bfloat16" else ()
    beside = ("--beside", options.beside) if options.beside else ()
    return (*chosen, "--dtype", options.dtype, *runner, *beside)


def _compared(worse: list[SweepResult], console: Console) -> int:
    """Tells what is right no longer, on GitHub also as annotations."""
    if "GITHUB_ACTIONS" in os.environ:
        print(*workflow_errors(worse), sep="\n")
    for result in worse:
        console.print(f"no longer right: {result.task} {result.model}: {result.reason}", markup=False, soft_wrap=True)
    console.print(f"{len(worse)} models that were right are so no longer")
    return 1 if worse else 0


def _write(results: list[SweepResult], folder: Path) -> None:
    rows = [asdict(result) for result in sorted(results, key=lambda result: (result.task, result.model))]
    (folder / "results.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / "results.html").write_text(page(results), encoding="utf-8")
