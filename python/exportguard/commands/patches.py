"""List the patches of the guard with their verdicts on this machine, show one with its diff, or check them for CI."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from ..command_line import argument
from ..errors import InvalidArgumentError
from ..patches import Patch, all_patches
from ..patches.details import patched_functions


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard patches`."""

    name: str = argument(help="A part of the names to list or show.", default="")
    show: bool = argument("--show", help="Show reason, link and difference of each.", default=False)
    check: bool = argument("--check", help="Exit with 1 if a patch does not fit the installed versions.", default=False)


def run(options: Options) -> int:
    """Prints the patches; returns 1 if one was to be checked and does not fit."""
    patches = [patch for patch in all_patches() if options.name in patch.name]
    if not patches:
        raise InvalidArgumentError(f"no patch has '{options.name}' in its name; the list is `exportguard patches`")
    console = Console()
    if options.show:
        for patch in patches:
            _show(console, patch)
    else:
        console.print(_table(patches))
    return int(options.check and any(patch.verdict()[0] == "does not fit" for patch in patches))


def _table(patches: list[Patch]) -> Table:
    table = Table("patch", "kind", "verdict", "why", box=None)
    for patch in patches:
        fit, why = patch.verdict()
        table.add_row(patch.name, patch.kind, fit, why or patch.reason)
    return table


def _show(console: Console, patch: Patch) -> None:
    fit, why = patch.verdict()
    console.print(f"[bold]{patch.name}[/bold] ({patch.kind}): {fit}{f', {why}' if why else ''}", highlight=False)
    console.print(patch.reason)
    for line in (f"upstream: {patch.upstream}", f"written for: {patch.versions}"):
        if not line.endswith(": "):
            console.print(line)
    console.print(*(f"changes {target}" for target in patch.targets), sep="\n", highlight=False)
    replaced = patch.replacements() if fit == "needed" else []
    for function in patched_functions(patch, replaced):
        console.print(Syntax(function.diff(), "diff"))
