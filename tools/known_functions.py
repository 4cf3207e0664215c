"""Notes the functions of the installed torch in which patches find what they expect, for the Python that runs this.

    python tools/known_functions.py

Those of other versions stay; a function that lacks something is left out, and a guard reads it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator

import torch

from exportguard.declaration.expected import KNOWN, Expected, Expecting
from exportguard.patches import all_patches


def installed() -> str:
    """The versions that decide on the code of torch's functions."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"torch {torch.__version__.partition('+')[0]}, python {python}"


def expectations() -> Iterator[Expected]:
    """Of every patch that a guard declares."""
    for patch in all_patches():
        if isinstance(patch.probe, Expecting):
            yield from patch.probe.expected


def digests() -> dict[str, str]:
    """Of the installed functions that have what is expected, by path; one that several patches use has a number."""
    found: dict[str, str] = {}
    for expected in expectations():
        function = expected.function()
        digest = expected.digest(function)
        if digest not in found.values() and not expected.missing_in(function):
            same = sum(name.split(" ")[0] == expected.path for name in found)
            found[f"{expected.path} {same + 1}" if same else expected.path] = digest
    return found


def main() -> None:
    versions = json.loads(KNOWN.read_text("utf-8")) | {installed(): digests()}
    KNOWN.write_text(f"{json.dumps(versions, indent=2, sort_keys=True)}\n", "utf-8")


if __name__ == "__main__":
    main()
