"""For each patch a program that is wrong, or stops, without it: `PROGRAMS = {name of the patch: function}`.

A function opens the guards that it needs and raises if what it checks does not hold. Modules are found, not listed.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

Program = Callable[[], None]


def all_programs() -> dict[str, Program]:
    found: dict[str, Program] = {}
    for info in pkgutil.iter_modules(__path__):
        programs = importlib.import_module(f"{__name__}.{info.name}").PROGRAMS
        assert not set(programs) & set(found), f"two programs for {set(programs) & set(found)}"
        found |= programs
    return found
