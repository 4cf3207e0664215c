"""Rewrites the functions that an export stops at, until it does not stop any more."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from exportguard.guard import torch_export_patches
from exportguard.rewrites.engine import innermost
from exportguard.rewrites.errors import RewriteError
from exportguard.rewrites.selection import RewritePatch, rewrite_patch

logger = logging.getLogger(__name__)

_NOT_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))  # torch and this package
_STOPS = (GuardOnDataDependentSymNode, DataDependentOutputException, UserError)


@dataclass(frozen=True, kw_only=True)
class RewrittenExport:
    """An exported program and the functions that were rewritten for it, in the order in which the export stopped."""

    program: torch.export.ExportedProgram
    rewritten: tuple[RewritePatch, ...]

    def report(self) -> str:
        """Each rewritten function with what was rewritten and the difference of its source."""
        return "\n\n".join(f"{', '.join(p.targets)}: {p.reason}\n{p.rewritten.diff()}" for p in self.rewritten)


def export_with_rewriting(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> RewrittenExport:
    """torch.export under the guard; where it stops at a test on tensor data, that function is rewritten and it is
    tried again.

    `dynamic_shapes` is what torch.export takes. Nothing stays rewritten afterwards; give `rewritten` as `rewrite` to
    `torch_export_patches` to have the same again.

    :raises Exception: torch's own error, with a note on what was tried, when there is no function to rewrite

    >>> class Clamped(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.max() < 1 else x / x.max()
    >>> [patch.attribute for patch in export_with_rewriting(Clamped(), (torch.rand(3),)).rewritten]
    ['forward']
    """
    steps: list[RewritePatch] = []
    while True:
        try:
            with torch_export_patches(rewrite=steps) as prepare:
                inputs = prepare((tuple(args), dict(kwargs or {})))
                program = torch.export.export(model, *inputs, dynamic_shapes=dynamic_shapes, strict=False)
            return RewrittenExport(program=program, rewritten=tuple(steps))
        except _STOPS as error:
            patch = _next_patch(model, error, {step.name for step in steps})
            if patch is None:
                tried = ", ".join(str(step.target) for step in steps) or "nothing"
                error.add_note(f"exportguard: rewritten so far: {tried}; no other function on the way can be rewritten")
                raise
            logger.info("%s stopped the export and is rewritten\n%s", patch.target, patch.rewritten.diff())
            steps.append(patch)


def _next_patch(model: torch.nn.Module, error: BaseException, known: set[str]) -> RewritePatch | None:
    """The patch of the innermost function outside torch that the error came through and the rules change."""
    for frame in _frames(error):
        place = _place_of(frame, model)
        if place is None:
            continue
        try:
            patch = rewrite_patch(*place)
        except RewriteError as reason:
            logger.info("%s is not rewritten: %s", frame.f_code.co_qualname, reason)
            continue
        if patch.rewritten.is_changed and patch.name not in known:
            return patch
    return None


def _frames(error: BaseException) -> Iterator[types.FrameType]:
    """The user's frames, innermost first, of the error and of what caused it."""
    current: BaseException | None = error
    while current is not None:
        frames = []
        trace = current.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        yield from (frame for frame in reversed(frames) if not frame.f_code.co_filename.startswith(_NOT_USERS))
        current = current.__cause__ or current.__context__


def _place_of(frame: types.FrameType, model: torch.nn.Module) -> tuple[Any, str] | None:
    """The class of the model, or the module of Python, that holds the function which runs in a frame, and its name."""
    classes = dict.fromkeys(cls for part in model.modules() for cls in type(part).__mro__)
    for cls in classes:
        for name, value in vars(cls).items():
            if _runs(value, frame.f_code):
                return cls, name
    name = frame.f_code.co_name
    module = frame.f_globals
    if _runs(module.get(name), frame.f_code):
        return sys.modules[module["__name__"]], name
    return None


def _runs(value: Any, code: types.CodeType) -> bool:
    if not isinstance(value, types.FunctionType | staticmethod | classmethod | property):
        return False
    try:
        return innermost(value).__code__ is code
    except RewriteError:
        return False
