"""A validation report as tables for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..axis_report import AxisOutcome
from .beside import Beside
from .set_result import SetResult
from .validate import ValidationReport


def print_report(report: ValidationReport, console: Console, detail: int = 1) -> None:
    """Prints the verdict; with detail 1 the tables before it, with 2 every output and the trace of a failure."""
    if detail > 0:
        console.print(_heading(report))
        if report.axes:
            console.print(axes_table(report))
        for step in report.rewritten:
            console.print(_rewriting(step, whole=detail > 1), markup=False, soft_wrap=True)
        if report.sets:
            console.print(sets_table(report, every_output=detail > 1))
            console.print(tolerances(report), style="dim", highlight=False, soft_wrap=True)
        if report.side_by_side:
            console.print(f"side by side, {report.side_by_side}", markup=False, highlight=False, soft_wrap=True)
        if report.beside:
            console.print(beside_line(report.beside), markup=False, highlight=False, soft_wrap=True)
        for sizes in report.refused:
            console.print(f"not compared, since the module raises there: {sizes}", markup=False, soft_wrap=True)
        for seconds_of in (report.seconds, report.phases if detail > 1 else {}):
            if seconds_of:
                line = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in seconds_of.items())
                console.print(line, style="dim")
    if detail > 1 and report.details:
        console.print(report.details, markup=False)
    console.print(verdict(report), soft_wrap=True)


def _rewriting(step: str, *, whole: bool) -> str:
    return f"rewritten, since the export stopped at {step if whole else step.splitlines()[0]}"


def axes_table(report: ValidationReport) -> Table:
    """Each input axis: asked, and kept or fixed."""
    table = Table("input", "axis", "asked", "outcome", title="axes", title_justify="left", box=None)
    for axis in report.axes:
        table.add_row(escape(axis.input), str(axis.axis), escape(axis.asked), _axis_outcome(axis))
    return table


def _axis_outcome(axis: AxisOutcome) -> str:
    if not axis.kept:
        return f"[red]fixed[/] to {axis.size}: {escape(axis.reason)}"
    bound = f", [yellow]at most {axis.at_most}[/]" if axis.at_most is not None else ""
    return f"[green]kept[/] as {escape(axis.size)}{bound}"


def sets_table(report: ValidationReport, *, every_output: bool) -> Table:
    """Each set of inputs with its largest differences; with `every_output` a line for each of them."""
    table = Table(
        "inputs", "sizes", "max abs", "max rel", "over", "result", title="comparisons", title_justify="left", box=None
    )
    for compared in report.sets:
        sizes = " ".join(f"{name}={size}" for name, size in compared.sizes.items())
        table.add_row(compared.name, sizes, *_worst(compared), _result(compared))
        for output in compared.outputs if every_output else ():
            measured = (f"{output.max_absolute:.1e}", f"{output.max_relative:.1e}", f"{output.share_over:.1%}")
            table.add_row(f"  {escape(output.name)}", str(list(output.shape)), *measured, escape(output.problem))
    return table


def tolerances(report: ValidationReport) -> str:
    """Which tolerance each dtype of the outputs has, and why."""
    found = {
        output.dtype: output.tolerance for compared in report.sets for output in compared.outputs if output.tolerance
    }
    exact = [dtype for dtype, bound in found.items() if bound.absolute == bound.relative == 0.0]
    parts = [
        f"{dtype} {bound.absolute:.1e} + {bound.relative:.1e} * |expected| (the same arithmetic in another order)"
        for dtype, bound in found.items()
        if dtype not in exact
    ]
    parts += [f"{', '.join(exact)} exact"] if exact else []
    return f"tolerance: {'; '.join(parts) or 'none asked for'}"


def beside_line(beside: Beside) -> str:
    """What another runner made of the same inputs.

    >>> beside_line(Beside(runner="evaluator", outcome="agrees", sets=4, max_absolute=2e-6))
    'beside it, evaluator: agrees on 4 sets of inputs, off by 2.0e-06 at the most'
    """
    if beside.outcome == "agrees":
        figures = f"on {beside.sets} sets of inputs, off by {beside.max_absolute:.1e} at the most"
        return f"beside it, {beside.runner}: agrees {figures}"
    return f"beside it, {beside.runner}: {beside.outcome}: {beside.reason}"


def verdict(report: ValidationReport) -> str:
    """One line: what the validation came to."""
    if report.failure:
        return f"[bold red]failed[/] {escape(report.model)}: {escape(report.failure)}"
    fixed = sum(not axis.kept for axis in report.axes)
    wrong = [inputs.name for inputs in report.sets if not inputs.agrees]
    if report.ok:
        compared = f"{len(report.sets)} comparisons agree" if report.sets else "converted, not compared"
        axes = f", {len(report.axes)} axes kept" if report.axes else ""
        return f"[bold green]ok[/] {escape(report.model)}: {compared}{axes}"
    return f"[bold red]failed[/] {escape(report.model)}: {fixed} axes fixed, wrong on {', '.join(wrong) or 'no inputs'}"


def _heading(report: ValidationReport) -> str:
    where = f", in {escape(report.file)}" if report.file else ""
    return (
        f"[bold]{escape(report.model)}[/] ({report.task}, {report.parameters:,} parameters, {report.dtype}, "
        f"{report.device}): {report.exporter}, opset {report.opset}, {report.node_count} nodes{where}"
    )


def _worst(set_result: SetResult) -> tuple[str, str, str]:
    if not set_result.outputs:
        return "-", "-", "-"
    return (
        f"{max(output.max_absolute for output in set_result.outputs):.1e}",
        f"{max(output.max_relative for output in set_result.outputs):.1e}",
        f"{max(output.share_over for output in set_result.outputs):.1%}",
    )


def _result(set_result: SetResult) -> str:
    if set_result.agrees:
        how = ", ties decided" * set_result.ties + ", as exact as the original" * set_result.as_exact
        return f"[green]agrees{how}[/]"
    problems = [
        set_result.error,
        *(f"{output.name}: {output.problem or 'differs'}" for output in set_result.outputs if not output.agrees),
    ]
    return f"[red]{escape('; '.join(problem for problem in problems if problem)[:200])}[/]"
