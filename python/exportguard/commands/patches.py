"""Patches of the guard: list them with their verdicts on this machine, show one with its diff, or check them for CI.

`exportguard patches [list|show|check] [NAME]`, where NAME is a part of the names. `check` exits with 1 if a patch does
not fit the installed versions: what it changes is there, but is not what the patch was written for. `exportguard
patches page FILE` writes what every patch changes here into a page, beside what the page has of other versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from ..command_line import argument
from ..declaration.constructs import SearchPatch
from ..errors import FileError, InvalidArgumentError
from ..guard.page import page
from ..onnx_model import require_writable
from ..patches import Patch, all_patches

_ACTIONS = ("list", "show", "check", "page")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard patches`."""

    action: str = argument(help="list, show, check or page; left out: list.", default="")
    name: str = argument(help="A part of the names of the patches; of page the file.", default="")
    show: bool = argument("--show", help="The same as show.", default=False)
    check: bool = argument("--check", help="The same as check.", default=False)
    format: str = argument(
        "--format",
        help="How show prints a difference.",
        default="terminal",
        choices=("terminal", "text", "rst", "html"),
    )


def run(options: Options) -> int:
    """Prints the patches; returns 1 if they were to be checked and one does not fit."""
    action, name = _action_and_name(options)
    if action == "page":
        return _write_page(Path(name or "docs/patches.md"))
    patches = [patch for patch in all_patches() if name in patch.name]
    if not patches:
        raise InvalidArgumentError(f"no patch has '{name}' in its name; the list is `exportguard patches`")
    for patch in patches:
        _load(patch)  # a verdict needs what the patch changes
    console = Console()
    if action == "show":
        for patch in patches:
            _show(console, patch, options.format)
    else:
        console.print(_table(patches))
    return int(action == "check" and any(_verdict(patch)[0] == "does not fit" for patch in patches))


def _load(patch: Patch) -> None:
    """Imports what it changes; of a construct, every model that has a word of it."""
    patch.load()
    if isinstance(patch, SearchPatch):
        patch.load_all()


def _verdict(patch: Patch) -> tuple[str, str]:
    if not isinstance(patch, SearchPatch):
        return patch.verdict()
    verdict = patch.verdict_here()
    return verdict.fit, verdict.reason


def _write_page(path: Path) -> int:
    require_writable(path, "NAME")
    before = path.read_text("utf-8") if path.is_file() else ""
    content = page(str(path), before)
    try:
        path.write_text(content, "utf-8")
    except OSError as error:
        raise FileError(f"cannot write the page to {path}: {error.strerror}; pass another name") from error
    return 0


def _action_and_name(options: Options) -> tuple[str, str]:
    by_flag = "check" if options.check else "show" if options.show else ""
    if options.action in _ACTIONS:
        return by_flag or options.action, options.name
    if options.name:
        raise InvalidArgumentError(f"the first argument must be one of {', '.join(_ACTIONS)}, got '{options.action}'")
    return by_flag or "list", options.action


def _table(patches: list[Patch]) -> Table:
    table = Table("patch", "kind", "verdict", "why", box=None)
    for patch in patches:
        fit, why = _verdict(patch)
        table.add_row(patch.name, patch.kind, fit, why or patch.reason)
    return table


def _show(console: Console, patch: Patch, format: str) -> None:
    fit, why = _verdict(patch)
    functions = patch.replaced_functions(patch.replacements() if fit == "needed" else [])
    if format != "terminal":
        for function in functions:
            print(function.format_diff(format))
        return
    console.print(f"[bold]{patch.name}[/bold] ({patch.kind}): {fit}{f', {why}' if why else ''}", highlight=False)
    console.print(patch.reason)
    for line in (f"upstream: {patch.upstream}", f"written for: {patch.versions}"):
        if not line.endswith(": "):
            console.print(line)
    console.print(*(f"changes {target}" for target in patch.targets), sep="\n", highlight=False)
    for function in functions:
        console.print(Syntax(function.diff(), "diff"))
