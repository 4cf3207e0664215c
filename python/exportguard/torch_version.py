"""The C++ side only works with the minor version of torch that it was built against."""

from __future__ import annotations


def require_same_torch(installed: str, built_against: str) -> None:
    """Compares the minor versions.

    >>> require_same_torch("2.13.1+cpu", "2.13.0")

    Raises:
        ImportError: they differ; with what to do.
    """
    if _minor(installed) != _minor(built_against):
        raise ImportError(
            f"exportguard was built against torch {built_against}, but torch {installed} is installed; "
            f"install torch {_minor(built_against)}.*, or rebuild with `pip install --no-build-isolation .`"
        )


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])
