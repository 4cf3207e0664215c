"""The patches that the guard knows, one module for each: a module that defines `PATCHES` is found, not listed."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Iterator

from exportguard import _core
from exportguard.declaration import NEEDED, Patch, Verdict, does_not_fit, not_needed, target_missing

__all__ = ["NEEDED", "Patch", "Verdict", "all_patches", "declare_all", "does_not_fit", "not_needed", "target_missing"]

#: Where patches live.
_HOMES = ("exportguard.patches", "exportguard.caches.units")


def _modules(home: str) -> Iterator[types.ModuleType]:
    package = importlib.import_module(home)
    for info in pkgutil.walk_packages(package.__path__, f"{home}."):
        yield importlib.import_module(info.name)


@functools.cache
def all_patches() -> tuple[Patch, ...]:
    """Every patch of the package, in the order of the modules' names."""
    modules = [module for home in _HOMES for module in _modules(home)]
    return tuple(patch for module in modules for patch in getattr(module, "PATCHES", ()))


@functools.cache
def declare_all() -> None:
    """Makes every patch known to the guards of this process, Python's and C++'s; a second call does nothing."""
    for patch in all_patches():
        _core.declare_patch(patch)
