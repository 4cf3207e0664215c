"""A record of the lines of a model that make a dynamic axis a constant while it is exported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .declaration import Patch
from .patches.torch.static_axes import model_line

_TARGET = "torch.fx.experimental.symbolic_shapes.ShapeEnv._set_replacement"


def recording_patch(lines: dict[str, str]) -> Patch:
    """A patch that writes to `lines`, by torch's symbol, the line of the model where it became a number."""

    def record(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def set_replacement(self: Any, a: Any, tgt: Any, msg: str) -> None:
            if tgt.is_number:
                lines.setdefault(str(a), model_line())
            original(self, a, tgt, msg)

        return set_replacement

    return Patch(
        name="record of fixed axes",
        kind="custom",
        target=_TARGET,
        reason="an axis that became a constant is reported with the line that did it",
        replace=record,
    )


def with_recording(guard: Mapping[str, Any], lines: dict[str, str]) -> dict[str, Any]:
    """Arguments of `torch_export_patches` that record to `lines` too; `stop_if_static` tells the line by itself."""
    if guard.get("stop_if_static") or not guard.get("patch", True):
        return dict(guard)
    return {**guard, "custom_patches": (*guard.get("custom_patches", ()), recording_patch(lines))}
