"""What a wheel says that it needs: for the build back end, see `tool.scikit-build.metadata` in pyproject.toml.

The C++ part works beside the minor version of torch that it was built against, so that a wheel asks for that one, and
pip says at the installation what would else be found out at the first import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata

#: Supported, where torch is not at hand: an archive of the sources, or a build in an environment of its own.
_TORCH = "torch>=2.11,<2.14"


def dynamic_metadata(field: str, settings: Mapping[str, Sequence[str]]) -> list[str]:
    """The requirements: those of `settings` and torch.

    Raises:
        ValueError: another field, or a setting that there is not.
    """
    if field != "dependencies" or set(settings) != {"packages"}:
        raise ValueError(f"wheel_requirements gives dependencies from `packages`, got {field} from {list(settings)}")
    return [_torch(), *settings["packages"]]


def _torch() -> str:
    try:
        major, minor, *_ = metadata.version("torch").split(".")
    except metadata.PackageNotFoundError:
        return _TORCH
    return f"torch=={major}.{minor}.*"
