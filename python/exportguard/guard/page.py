"""What every patch changes on the installed versions: found out by a guard, and written as a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from importlib import metadata

from exportguard.declaration.constructs import SearchPatch
from exportguard.declaration.options import PatchOptions
from exportguard.guard.opening import ReportLine, open_guard
from exportguard.patches import all_patches

_HEAD = """# Patches

What each patch of the guard changes: every function that is replaced, found out by a guard with all modules imported
that a patch names, or that have what it looks for. A patch that is not in force says why. `exportguard patches page
{file}` makes this page anew for the versions that are installed, `exportguard patches` lists those of your machine.
"""


def installed_lines() -> list[ReportLine]:
    """The report of a guard that has met every function which a patch may change; imports some hundred models."""
    for patch in all_patches():
        patch.load()
        if isinstance(patch, SearchPatch):
            patch.load_all()
    with open_guard(PatchOptions(patch_diffusers=True)) as guard:
        return guard.report


def section(lines: Iterable[ReportLine]) -> str:
    """The lines for the versions that are installed, as Markdown."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("transformers", "torch"))
    return "\n".join([f"## {versions}", "", *(text for line in lines for text in _of_line(line))])


def page(file: str, before: str = "") -> str:
    """The page with this section; sections of other versions that `before` has stay, the newest first."""
    own = section(installed_lines())
    others = [f"## {part.rstrip()}\n" for part in before.split("\n## ")[1:]]
    kept = [part for part in others if part.splitlines()[0] != own.splitlines()[0]]
    sections = sorted([f"{own.rstrip()}\n", *kept], key=_release, reverse=True)
    return "\n".join([_HEAD.format(file=file), *sections])


def _release(section: str) -> list[int]:
    """The numbers of the version of transformers that a section is headed by."""
    version = section.split()[2].rstrip(",")
    return [int(part) for part in version.split(".") if part.isdigit()]


def _of_line(line: ReportLine) -> list[str]:
    state = line.outcome if line.outcome == "installed" else f"{line.outcome}: {line.reason}"
    head = f"**{line.name}** ({line.kind}): {state}"
    if line.outcome != "installed":
        return [head, ""]
    return [f"{head}: {line.reason}", *_grouped(line.targets), ""]


def _grouped(targets: list[str]) -> list[str]:
    """One item for each module, its functions behind it."""
    by_module = itertools.groupby(sorted(targets), key=_module_of)
    return ["", *(f"- `{module}`: {', '.join(_own_names(module, paths))}" for module, paths in by_module)]


def _module_of(path: str) -> str:
    parts = path.split(".")[:-1]
    return ".".join(itertools.takewhile(lambda part: part == part.lower() and not part.startswith("<"), parts))


def _own_names(module: str, paths: Iterable[str]) -> list[str]:
    return [f"`{path.removeprefix(module).lstrip('.')}`" for path in paths]
