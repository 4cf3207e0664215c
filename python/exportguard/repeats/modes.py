"""Changes of a mode that change nothing: `torch.no_grad()` inside another, autocast that is switched off and was off.

Each is a node of the graph, ends what a block may replay, and lets passes of torch cut the graph into pieces.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

_SET_GRAD = torch._C._set_grad_enabled
_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


class Modes:
    """The modes of one trace, as far as its graph has them."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._nothing: set[Node] = set()  # what was returned in the place of nodes
        self._open = 0  # autocast contexts that are in the graph
        self._was_off = not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda")

    def changes_nothing(self, target: Any, args: tuple[Any, ...]) -> bool:
        """Whether a node with this target need not be in the graph."""
        if target is _SET_GRAD:
            # The mode is set after the node is made.
            return len(args) == 1 and args[0] == torch.is_grad_enabled()
        if target is _EXIT:
            is_nothing = bool(args) and args[0] in self._nothing
            self._open -= not is_nothing
            return is_nothing
        if target is not _ENTER:
            return False
        device, enabled = args[0], args[2]
        is_nothing = not enabled and not self._open and self._was_off and device in ("cpu", "cuda")
        self._open += not is_nothing
        return is_nothing

    def node_of_nothing(self, target: Any) -> Node:
        """A node that is in no graph, for who wants to write its `meta`."""
        node = Node(self._tracer.graph, "nothing", "call_function", target, (), {})
        self._nothing.add(node)
        return node
