"""Buffers that `forward` binds anew: `self.state = self.state * 0.9 + x`.

torch.export (2.11 to 2.13) notes such an assignment in the exported module alone, not in the modules within, and writes
the new tensor to the input that has the buffer's number: to another one if some buffer was None before the call, and to
one of another size where a table has grown. Here it is written to the buffer itself when the call ends, as
`self.state.copy_(…)` is, which a trace knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch
from exportguard.lost_buffers import tell_lost
from exportguard.repeats.questions import is_replayed

_TARGET = "torch.export._trace.register_buffer_assignment_hook"


@dataclass(frozen=True)
class _Buffer:
    """A buffer of a module as it was when the call began."""

    owner: torch.nn.Module
    name: str
    path: str
    tensor: torch.Tensor

    def now(self) -> torch.Tensor | None:
        """What the module holds in its place."""
        return dict(self.owner._buffers.items()).get(self.name)  # a module of TorchScript has no dict


class _Assignments:
    """Writes to the buffers of a module, when a call of it ends, what was bound to their names; until it is removed."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._before: list[_Buffer] = []
        self._hooks = [model.register_forward_pre_hook(self._begin), model.register_forward_hook(self._end)]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin(self, model: torch.nn.Module, _: object) -> None:
        self._before = [
            _Buffer(owner, name, f"{path}.{name}" if path else name, tensor)
            for path, owner in model.named_modules()
            for name, tensor in owner._buffers.items()
            if tensor is not None
        ]

    def _end(self, _model: object, _arguments: object, outputs: object) -> Any:
        """The outputs; those that are a buffer which is written are copies of what it was."""
        pairs = [(buffer, now) for buffer in self._before if (now := buffer.now()) is not None]
        written = [(buffer.tensor, now) for buffer, now in pairs if now is not buffer.tensor and _fits(buffer, now)]
        if not written:
            return None

        buffers = [tensor for tensor, _ in written]
        apart = functools.partial(_apart, buffers)
        outputs = pytree.tree_map_only(torch.Tensor, apart, outputs)
        values = [apart(now.detach()) for _, now in written]
        with torch.no_grad():
            for tensor, value in zip(buffers, values, strict=True):
                tensor.copy_(value)
        return outputs


def _apart(buffers: Sequence[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it if it shares memory with one of the buffers, or may."""
    shares = is_replayed(tensor) or any(_memory(tensor) == _memory(buffer) for buffer in buffers)
    return tensor.clone() if shares else tensor


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _fits(buffer: _Buffer, now: torch.Tensor) -> bool:
    """Whether the buffer can hold the new tensor; what it cannot hold is lost behind the call, and told."""
    # Not at the top: symbolic shapes take long to import, and whoever exports has them by now.
    from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

    if now.dtype == buffer.tensor.dtype and statically_known_true(sym_eq(now.shape, buffer.tensor.shape)):
        return True
    tell_lost(buffer.path, buffer.tensor, now)
    return False


def writing_in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch's hook, which notes nothing, and writes what is assigned in the whole module."""

    @functools.wraps(original)
    def register(mod: torch.nn.Module, assigned_buffers: dict[str, str]) -> Any:
        # With strict=True it is the graph that dynamo made of the module: its writes are operators already.
        is_graph = isinstance(mod, torch.fx.GraphModule)
        return original(mod, assigned_buffers) if is_graph else _Assignments(mod)

    return register


PATCHES = (
    Patch(
        name="assigned buffers",
        kind="torch",
        target=_TARGET,
        reason="what forward assigns to a buffer is written to another tensor, or lost",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_functorch/_aot_autograd/utils.py",
        probe=expecting(Expected(path=_TARGET, parameters="mod, assigned_buffers")),
        replace=writing_in_place,
    ),
)
