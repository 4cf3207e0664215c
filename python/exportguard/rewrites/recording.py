"""Which tensors a branch reads and writes, found by running it once with proxy tracing off.

A higher-order operator of torch takes everything that its bodies read as explicit operands. A branch written by a user
is a closure: it reads parameters, attributes, enclosing variables. `record` runs such a closure on fake tensors and
returns what it captured; `substituted` runs it again with the operands in the places of what was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


@dataclass(kw_only=True)
class Captured:
    """Tensors that a closure reads but does not make, in the order of their first use, and which of them it writes."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    numbers: dict[Any, torch.SymInt] = field(default_factory=dict)  # from tensor data, by what they stand for
    own_symbols: set[Any] = field(default_factory=set)  # of numbers and sizes that the closure makes from tensor data
    outer_symbols: set[Any] = field(default_factory=set)  # of those that it is given
    ids: set[int] = field(default_factory=set)
    made: dict[int, torch.Tensor] = field(default_factory=dict)  # by the closure; held, so that no id is used twice

    def add_number(self, number: torch.SymInt) -> None:
        symbols = _symbols(number)
        if symbols and not symbols & self.own_symbols:
            self.outer_symbols |= symbols
            self.numbers.setdefault(number.node.expr, number)

    def add(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self.ids or id(tensor) in self.made:
            return
        self.ids.add(id(tensor))
        self.outer_symbols |= _symbols(tensor)
        self.tensors.append(tensor)
        self.versions.append(tensor._version)

    def mark_written(self) -> list[bool]:
        """For each captured tensor whether its content was changed since it was captured."""
        return [t._version != v for t, v in zip(self.tensors, self.versions, strict=True)]


def _symbols(item: Any) -> set[Any]:
    """What tensor data decides in a number or in the sizes of a tensor."""
    sizes = item.shape if isinstance(item, torch.Tensor) else (item,)
    symbolic = (size for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat))
    return {symbol for size in symbolic for symbol in free_unbacked_symbols(size)}


class _Recorder(TorchFunctionMode):
    def __init__(self, captured: Captured) -> None:
        super().__init__()
        self._captured = captured

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self._captured.add(leaf)
            elif isinstance(leaf, torch.SymInt):
                self._captured.add_number(leaf)
        result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            self._note_made(leaf)
        return result

    def _note_made(self, leaf: Any) -> None:
        if isinstance(leaf, torch.Tensor) and id(leaf) not in self._captured.ids:
            self._captured.made[id(leaf)] = leaf
        self._captured.own_symbols |= _symbols(leaf) - self._captured.outer_symbols


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
    with disable_proxy_modes_tracing(), _ignored_symbols(), _unrecorded_buffers(), _Recorder(captured):
        return function()


@contextmanager
def _unrecorded_buffers() -> Iterator[None]:
    """torch notes the buffers that a model registers while it is traced; one that a body registers comes out of it."""
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    torchs = {key: hook for key, hook in hooks.items() if getattr(hook, "__module__", "").startswith("torch.")}
    for key in torchs:
        del hooks[key]
    try:
        yield
    finally:
        hooks.update(torchs)


def _ignored_symbols() -> AbstractContextManager[Any]:
    """Sizes and numbers from tensor data get symbols in every run; those of this one appear nowhere."""
    mode = torch._guards.detect_fake_mode()
    env = mode.shape_env if mode is not None else None
    return nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()


@contextmanager
def substituted(captured: list[torch.Tensor], operands: list[torch.Tensor]) -> Iterator[Callable[[Any], Any]]:
    """While open, every torch function sees `operands` where it is given `captured`. Yields the same for a pytree."""
    mode = _Substitution({id(c): o for c, o in zip(captured, operands, strict=True)})
    with mode, _unrecorded_buffers():
        yield lambda tree: pytree.tree_map(mode.replace, tree)
