"""Packages that need not be installed: they are imported when something of them is asked for."""

from __future__ import annotations

import importlib
import types
from typing import Any

from .errors import PackageError

#: What brings a package where it is not called as its module is.
_INSTALLED_AS = {"onnxruntime_genai": "onnxruntime-genai"}


class OptionalModule:
    """Stands for a module; the first attribute that is asked for imports it."""

    def __init__(self, name: str) -> None:
        """`name` is the module's full name, `transformers.cache_utils`."""
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """The attribute of the module.

        Raises:
            PackageError: its package is not installed; with the command that does it.
        """
        if attribute.startswith("__"):  # what copies and documents things asks every object for these
            raise AttributeError(attribute)
        return getattr(imported(self._name), attribute)

    def __repr__(self) -> str:
        return f"OptionalModule({self._name!r})"


def imported(name: str) -> types.ModuleType:
    """The module.

    >>> imported("json").__name__
    'json'

    Raises:
        PackageError: its package is not installed; with the command that does it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        wanted = _INSTALLED_AS.get(package, package)
        raise PackageError(f"this needs {wanted}, which is not installed: pip install {wanted}") from error
