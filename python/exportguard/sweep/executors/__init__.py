"""Where the models of a sweep run, by name: `local`, `dask://HOST:PORT`, `ray://HOST:PORT`.

Each module here is a kind of executor: `opened(address, jobs)` is a context manager that yields one.
"""

from __future__ import annotations

import importlib
import pkgutil
from concurrent.futures import Executor
from contextlib import AbstractContextManager

from ...errors import InvalidArgumentError


def executor_named(name: str, jobs: int = 1) -> AbstractContextManager[Executor]:
    """The executor called `name`; `jobs` bounds how many models run at once where it is not the cluster that decides.

    Raises:
        InvalidArgumentError: no such kind, no address, or a package that is not installed.
    """
    kind, _, address = name.partition("://")
    kinds = sorted(entry.name for entry in pkgutil.iter_modules(__path__))
    if kind not in kinds:
        raise InvalidArgumentError(f"unknown executor {name!r}; known are {_examples(kinds)}")
    if bool(address) != (kind != "local"):
        raise InvalidArgumentError(f"an executor is written {_examples([kind])}, got {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{kind}")
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"the executor {name} needs the package {error.name}, which is not installed; "
            f"pip install exportguard[{kind}]"
        ) from error
    opened: AbstractContextManager[Executor] = module.opened(address, jobs)
    return opened


def _examples(kinds: list[str]) -> str:
    return ", ".join(kind if kind == "local" else f"{kind}://HOST:PORT" for kind in kinds)
