"""Memory that a call writes into although it is older than the call: weights, buffers, plain tensors of a module."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exportguard import _core
from exportguard.declaration.interrupts import DeferredInterrupts


@functools.lru_cache(maxsize=4096)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """The places and names of the arguments that an operator writes into."""
    schema = getattr(func, "_schema", None)
    arguments = schema.arguments if schema is not None and schema.is_mutable else ()
    told = ((place, argument) for place, argument in enumerate(arguments) if argument.alias_info is not None)
    return tuple((place, argument.name) for place, argument in told if argument.alias_info.is_write)


_NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)

#: They write running means and variances, of which their schemas say nothing (torch 2.11 to 2.13).
_WRITING_UNTOLD = frozenset(
    f"aten::{name}" for name in ("batch_norm", "instance_norm", "native_batch_norm", "_batch_norm_impl_index")
)


def may_write(node: Node) -> bool:
    """Whether the call of a node may write into an argument: an operator that says so, and what says nothing.

    Functions with graphs in them and operators of other libraries may have any code; what is given numbers alone, as
    arithmetic of sizes is, has no memory to write into.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        is_told = target.namespace == "aten" and target._schema.name not in _WRITING_UNTOLD
        return not is_told or bool(_written_arguments(target))
    of_numbers = all(isinstance(given.meta.get("val"), _NUMBERS) for given in node.all_input_nodes)
    return target is not operator.getitem and not of_numbers


def _form(tensor: torch.Tensor) -> tuple[int, list[int], list[int]]:
    """The offset, the sizes and the strides."""
    return int(tensor.storage_offset()), [*tensor.shape], [*tensor.stride()]


@dataclass(frozen=True)
class Before:
    """What a storage held, and the form and version of the tensor through which it was written."""

    tensor: torch.Tensor
    content: torch.UntypedStorage
    offset: int
    sizes: list[int]
    strides: list[int]
    version: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Before:
        """What the storage of a tensor holds now."""
        # Tensors made under torch.inference_mode() have no version.
        version = None if tensor.is_inference() else tensor._version
        storage: Any = tensor.untyped_storage()  # whose clone has no types
        return cls(tensor, storage.clone(), *_form(tensor), version)

    def restore(self) -> None:
        """Puts it back."""
        storage = self.tensor.untyped_storage()
        if storage.nbytes() != self.content.nbytes():
            storage.resize_(self.content.nbytes())
        storage.copy_(self.content)
        form = self.offset, self.sizes, self.strides
        if _form(self.tensor) != form:  # x.t_(), x.unsqueeze_(0), x.resize_(3)
            with torch.no_grad():
                self.tensor.set_(storage, *form)
        if self.version is not None:  # a gradient that is still to be computed asks for it (torch 2.11 to 2.13)
            torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))


class UndoneWrites:
    """What calls write into memory that is older than they are is put back after each.

    It is copied when it is first written, for weights are large. Versions of tensors do not tell: below autograd, where
    operators run, they stay, and `tensor.data` has its own. The calls that follow one which wrote nothing are not
    watched.
    """

    def __init__(self, *, may_write: bool = True) -> None:
        """`may_write` is false where it is known that no call writes into anything."""
        self._before: dict[int, Before] = {}
        self._watch: _core.WriteWatch | None = None
        self._writes_nothing = not may_write

    @contextmanager
    def call(self) -> Iterator[None]:
        """Runs a block with one call."""
        try:
            with nullcontext() if self._writes_nothing else self._watched():
                yield
            self._writes_nothing = not self._before
        finally:
            with DeferredInterrupts():
                for before in self._before.values():
                    before.restore()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        around = self._watch
        try:
            with _core.WriteWatch() as self._watch:
                try:
                    yield
                finally:
                    self._take()
        finally:
            self._watch = around

    def _take(self) -> None:
        """Takes over what was copied by now; what was written in an earlier call is known as it was before that."""
        taken = () if self._watch is None else self._watch.taken()
        for tensor, content, offset, sizes, strides, version in taken:
            if content is not None:
                before = Before(tensor, content, offset, sizes, strides, version)
                self._before.setdefault(tensor.untyped_storage()._cdata, before)

    def has_written(self, tensor: torch.Tensor) -> bool:
        """Whether a call was seen to write into the memory of a tensor that is older than it."""
        self._take()
        return tensor.untyped_storage()._cdata in self._before

    def left(self, value: Any) -> Any:
        """What a value holds within the block, also behind it: a copy where the call wrote into memory that is older.

        What a call returns may lie there as well, as a state does that it was given and that it updates.
        """
        if not isinstance(value, torch.Tensor) or not has_memory(value):
            return value
        return value.detach().clone() if self.has_written(value) else value


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has data of its own in one storage."""
    return tensor.layout == torch.strided and not tensor.is_meta and not hasattr(tensor, "fake_mode")
