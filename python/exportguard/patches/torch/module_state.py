"""What a trace stores in a module is taken out of it again.

`torch.export` puts back the parameters and buffers that it replaced. What `forward` itself assigns while it is traced,
a table that is computed at the first call for instance, stays: tensors without data, which the next call computes with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting
from exportguard.rewrites.state import Snapshot, snapshot_of

_TARGET = "torch.export._trace._export"

#: The module that is being exported in this thread, and what it held before.
_EXPORTED: ContextVar[tuple[torch.nn.Module, Snapshot] | None] = ContextVar("exportguard.exported", default=None)


@contextmanager
def state_before_export(module: torch.nn.Module) -> Iterator[Snapshot]:
    """What a module and all in it held when its export began, which the block belongs to; one look is enough."""
    known = _EXPORTED.get()
    if known is not None and known[0] is module:
        yield known[1]
        return
    snapshot = snapshot_of(module)
    token = _EXPORTED.set((module, snapshot))
    try:
        yield snapshot
    finally:
        _EXPORTED.reset(token)


def restoring_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    """The export, with every attribute of every submodule as it was before, also if the export stops."""

    @functools.wraps(original)
    def export(mod: object, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mod, torch.nn.Module):
            return original(mod, *args, **kwargs)
        with state_before_export(mod) as snapshot:
            try:
                return original(mod, *args, **kwargs)
            finally:
                snapshot.restore(snapshot.changes())

    return export


PATCHES = (
    Patch(
        name="attributes of traced modules",
        kind="torch",
        target=_TARGET,
        reason="what forward assigns while it is traced stays in the module, and its next call computes without data",
        upstream="https://github.com/pytorch/pytorch/issues/155114",
        probe=expecting(Expected(path=_TARGET, parameters="mod, ...")),
        replace=restoring_modules,
    ),
)
