"""Which tensors a branch reads and writes, found by running it once with proxy tracing off.

A higher-order operator of torch takes everything that its bodies read as explicit operands. A branch written by a user
is a closure: it reads parameters, attributes, enclosing variables. `record` runs such a closure on fake tensors and
returns what it captured; `substituted` runs it again with the operands in the places of what was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


@dataclass(kw_only=True)
class Captured:
    """Tensors that a closure reads but does not make, in the order of their first use, and which of them it writes."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    made: dict[int, torch.Tensor] = field(default_factory=dict)  # by the closure; held, so that no id is used twice

    def add(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self.ids or id(tensor) in self.made:
            return
        self.ids.add(id(tensor))
        self.tensors.append(tensor)
        self.versions.append(tensor._version)

    def mark_written(self) -> list[bool]:
        """For each captured tensor whether its content was changed since it was captured."""
        return [t._version != v for t, v in zip(self.tensors, self.versions, strict=True)]


class _Recorder(TorchFunctionMode):
    def __init__(self, captured: Captured) -> None:
        super().__init__()
        self._captured = captured

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self._captured.add(leaf)
        result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._captured.ids:
                self._captured.made[id(leaf)] = leaf
        return result


class _Substitution(TorchFunctionMode):
    def __init__(self, replacements: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._replacements = replacements

    def replace(self, leaf: Any) -> Any:
        return self._replacements.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map(self.replace, (args, kwargs or {}))
        return func(*args, **kwargs)


def record(function: Callable[[], Any], captured: Captured) -> Any:
    """Runs `function` on fake tensors without leaving a trace in the graph; returns what it returns."""
    with disable_proxy_modes_tracing(), _Recorder(captured):
        return function()


@contextmanager
def substituted(captured: list[torch.Tensor], operands: list[torch.Tensor]) -> Iterator[Callable[[Any], Any]]:
    """While open, every torch function sees `operands` where it is given `captured`. Yields the same for a pytree."""
    mode = _Substitution({id(c): o for c, o in zip(captured, operands, strict=True)})
    with mode:
        yield lambda tree: pytree.tree_map(mode.replace, tree)
