"""The code of models, read without importing it."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path


@functools.cache
def source_of_module(name: str) -> str:
    """The text of a module; empty if there is none, as for models whose code transformers does not have.

    >>> "def source_of_module" in source_of_module("exportguard.models.sources")
    True
    """
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of a package around it
        return ""
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


def defines(name: str, function: str) -> bool:
    """Whether a module has a function or a method of that name.

    >>> defines("exportguard.models.sources", "defines"), defines("no.such", "defines")
    (True, False)
    """
    return f"def {function}(" in source_of_module(name)
