"""Stack traces of nodes, of which torch keeps the lines of a few frames and reads those of all."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting

_TARGET = "torch.utils._traceback._extract_symbolized_tb"


def reading_no_line(original: Callable[..., Any]) -> Callable[..., Any]:
    """The frames of a stack, whose lines are read when somebody asks for them."""

    @functools.wraps(original)
    def extract(tb: Any, skip: int) -> traceback.StackSummary:
        # A list of frames, as torch makes it; `from_list` would read the lines to compare them.
        stack = traceback.StackSummary()
        stack.extend(
            [
                traceback.FrameSummary(frame["filename"], frame["line"], frame["name"], lookup_line=False)
                for frame in reversed(tb[skip:])
            ]
        )
        return stack

    return extract


PATCHES = (
    Patch(
        name="lines of stack traces",
        kind="torch",
        target=_TARGET,
        reason="a node keeps the few lines of the model that made it, and torch reads those of all frames around it",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/_traceback.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="tb, skip",
                has=('$traceback.FrameSummary($f["filename"], $f["line"], $f["name"])', "reversed(tb[skip:])"),
            )
        ),
        replace=reading_no_line,
    ),
)
