"""The version of the package, in this one place: CMake and the wheel read it from here."""

from __future__ import annotations

from importlib import metadata

VERSION = "0.1.0"

#: What a result depends on.
_PACKAGES = ("torch", "transformers", "onnxruntime", "onnx", "onnxscript")


def versions() -> dict[str, str]:
    """This version and the installed ones that a result depends on; "not installed" for what is missing."""
    return {"exportguard": VERSION, **{name: installed_version(name) for name in _PACKAGES}}


def made_with() -> dict[str, str]:
    """What a file says of the versions that made it: those of exportguard, torch and, if installed, transformers."""
    known = {name: versions()[name] for name in ("exportguard", "torch", "transformers")}
    return {f"{name}.version": version for name, version in known.items() if version != "not installed"}


def installed_version(package: str) -> str:
    """The version of a package, found out without importing it.

    >>> installed_version("no such package")
    'not installed'
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
