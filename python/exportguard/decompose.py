"""Takes operators apart that the converter does not know, one at a time, with torch's own decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from .operator_trace import Trace


def expand(model: _core.Model) -> int:
    """Replaces operators without a lowering by torch's decomposition of each; returns how many nodes were replaced.

    The program that the model was imported from is not touched: each operator is traced by itself, with symbolic sizes
    of its own. What torch cannot take apart stays, and the lowering reports it.
    """
    return _core.expand(model, trace)


def trace(target: str, arguments: Sequence[Any]) -> Trace | None:
    """What torch makes of one operator; see `trace_operator`."""
    # Few models need it, and torch's tracer takes long to import.
    from .operator_trace import trace_operator

    return trace_operator(target, arguments)
