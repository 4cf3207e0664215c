"""Stack traces of nodes, of which torch keeps the lines of a few frames and gathers all."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch.fx.proxy

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import KEPT_FRAMES, Verdict, not_needed

_CAPTURED = "torch.fx.proxy.CapturedTraceback"
_TRACER = "torch.fx.proxy.TracerBase"
_FILTER = f"{_TRACER}._filter_traceback_frames"

_FILTERS = expecting(
    Expected(
        path=_FILTER,
        parameters="self, user_stack_summary",
        has=('frame.name == "forward"', "frame.filename not in uninteresting_files()"),
    ),
)


def frames_of_models(_: Any) -> Any:
    """`CapturedTraceback`, which a tracer asks for the frames of a node: those that it keeps, which are the interesting
    ones within the outermost `forward`, and that one, which it looks for. Their lines are read for the text alone."""
    # Not at the top: symbolic shapes take long to import, and whoever traces has them by now.
    from torch.fx.experimental.symbolic_shapes import uninteresting_files

    class Frames:
        @staticmethod
        def extract() -> Frames:
            return Frames()

        def summary(self) -> traceback.StackSummary:
            left_out = uninteresting_files()
            frame: types.FrameType | None = sys._getframe(1)
            found: list[types.FrameType] = []
            within, outermost = 0, None
            while frame is not None:
                code = frame.f_code
                if code.co_filename not in left_out:
                    found.append(frame)
                if code.co_name == "forward":
                    within, outermost = len(found), frame
                frame = frame.f_back
            kept = found[:within]
            if outermost is not None and kept[-1:] != [outermost]:
                kept.append(outermost)
            stack = traceback.StackSummary()
            stack.extend(map(_entry, reversed(kept)))
            return stack

    return Frames


def _entry(frame: types.FrameType) -> traceback.FrameSummary:
    code = frame.f_code  # which finds a line by going through all before it: that is asked of the kept ones alone
    return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False)


def filter_with_replaced(original: Callable[..., Any]) -> Callable[..., Any]:
    """What leaves the frames of `forward` alone in a stack, and those of functions that take another's place. The other
    patch finds in it what it looks for, too."""

    def filter_traceback_frames(self: Any, user_stack_summary: traceback.StackSummary) -> traceback.StackSummary:
        if not self._record_forward_stack_traces_only:
            left: traceback.StackSummary = original(self, user_stack_summary)
            return left
        from torch.fx.experimental.symbolic_shapes import uninteresting_files

        told = [
            frame
            for frame in user_stack_summary
            if frame.name == "forward"
            or frame.filename.endswith("torch/__init__.py")
            or (frame.filename, frame.name) in KEPT_FRAMES
        ]
        return traceback.StackSummary.from_list(
            [frame for frame in told if frame.filename not in uninteresting_files()]
        )

    return filter_traceback_frames


def _keeps_no_other_frames() -> Verdict:
    if hasattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS"):
        return not_needed("torch is told which functions its nodes name")
    return _FILTERS()


PATCHES = (
    Patch(
        name="replaced functions in stack traces",
        kind="torch",
        target=_FILTER,
        awaits="torch.export._trace",
        reason="a node names the calls of `forward` alone, and not the function in another's place that made it",
        upstream="https://github.com/pytorch/pytorch/blob/v2.11.0/torch/fx/proxy.py",
        versions="torch 2.11",
        is_in_traces=False,
        probe=_keeps_no_other_frames,
        replace=filter_with_replaced,
    ),
    Patch(
        name="lines of stack traces",
        kind="torch",
        target=_CAPTURED,
        awaits="torch.export._trace",
        reason="a node keeps the few lines of the model that made it, and torch gathers and reads those of all frames",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/proxy.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(
            Expected(path=f"{_TRACER}.create_node", has=("CapturedTraceback.extract().summary()",)),
            Expected(path=_FILTER, has=('frame.name == "forward"', "frame.filename not in uninteresting_files()")),
        ),
        replace=frames_of_models,
    ),
)
