"""What a trace stores in a module is taken out of it again.

`torch.export` puts back the parameters and buffers that it replaced. What `forward` itself assigns while it is traced,
a table that is computed at the first call for instance, stays: tensors without data, which the next call computes with.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration import NEEDED, Patch, Verdict, does_not_fit, resolve
from exportguard.rewrites.state import Snapshot

_TARGET = "torch.export._trace._export"


def restoring_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    """The export, with every attribute of every submodule as it was before, also if the export stops."""

    @functools.wraps(original)
    def export(mod: object, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mod, torch.nn.Module):
            return original(mod, *args, **kwargs)
        snapshot = Snapshot(mod.modules())
        try:
            return original(mod, *args, **kwargs)
        finally:
            snapshot.restore(snapshot.changes())

    return export


def _probe() -> Verdict:
    first = next(iter(inspect.signature(resolve(_TARGET).function).parameters))
    return NEEDED if first == "mod" else does_not_fit(f"its first argument is {first}, not the module")


PATCHES = (
    Patch(
        name="attributes of traced modules",
        kind="torch",
        target=_TARGET,
        reason="what forward assigns while it is traced stays in the module, and its next call computes without data",
        upstream="https://github.com/pytorch/pytorch/issues/155114",
        probe=_probe,
        replace=restoring_modules,
    ),
)
