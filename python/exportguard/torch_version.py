"""The C++ side only works with the minor version of torch that it was built against."""

from __future__ import annotations

from .errors import PackageError
from .optional import imported


def require_torch() -> str:
    """Loads torch and gives its version.

    Raises:
        PackageError: torch is not installed.
    """
    version: str = imported("torch").__version__
    return version


def core_that_does_not_load(torch: str, error: ImportError) -> PackageError:
    """The error for a C++ part that is not there, or that the installed torch cannot carry.

    >>> str(core_that_does_not_load("2.13.0", ImportError("undefined symbol: x")))[:60]
    "exportguard's C++ part does not load beside torch 2.13.0: un"
    """
    if isinstance(error, ModuleNotFoundError):
        return PackageError("exportguard's C++ part is not built: run `make build`, or `pip install .` in the source")
    reason = str(error).partition("\n")[0]
    return PackageError(
        f"exportguard's C++ part does not load beside torch {torch}: {reason}; install the torch that it was built "
        "against, or rebuild it with `pip install --no-build-isolation .`"
    )


def require_same_torch(installed: str, built_against: str) -> None:
    """Compares the minor versions.

    >>> require_same_torch("2.13.1+cpu", "2.13.0")

    Raises:
        PackageError: they differ; with what to do.
    """
    if _minor(installed) != _minor(built_against):
        raise PackageError(
            f"exportguard was built against torch {built_against}, but torch {installed} is installed; "
            f"install torch {_minor(built_against)}.*, or rebuild with `pip install --no-build-isolation .`"
        )


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])
