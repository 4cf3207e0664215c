"""What a trace stores in a module is taken out of it again.

`torch.export` puts back the parameters and buffers that it replaced. What `forward` itself assigns while it is traced,
a table that is computed at the first call for instance, stays: tensors without data, which the next call computes with.
And what it writes into tensors that are neither is written into them, for a trace (torch 2.11 to 2.13) meets them as
constants, with their data.
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
from exportguard.rewrites.written import Before, has_memory

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


@contextmanager
def _plain_tensors_kept(module: torch.nn.Module, snapshot: Snapshot) -> Iterator[None]:
    """Tensors that are neither weights nor buffers hold what they held, once the block is over."""
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    plain = [tensor for tensor in snapshot.tensors if id(tensor) not in own and has_memory(tensor)]
    kept = [Before.of(tensor) for tensor in plain]
    try:
        yield
    finally:
        for before in kept:
            before.restore()


def restoring_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    """The export, with every attribute of every submodule as it was before, also if the export stops."""

    @functools.wraps(original)
    def export(mod: object, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mod, torch.nn.Module):
            return original(mod, *args, **kwargs)
        with state_before_export(mod) as snapshot, _plain_tensors_kept(mod, snapshot):
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
