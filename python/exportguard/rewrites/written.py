"""Memory that a call writes into although it is older than the call: weights, buffers, plain tensors of a module."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from exportguard.declaration.interrupts import DeferredInterrupts


class Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells of each tensor that an operator is about to write into, and of operators with what they returned.

    Versions of tensors do not tell: below autograd, where operators run, they stay, and `tensor.data` has its own.
    """

    supports_higher_order_operators = True

    def __init__(self, before: Callable[[torch.Tensor], None], made: Callable[[Any, Any], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before, self._made = before, made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = _written_arguments(func)
        for tensor in pytree.tree_leaves([_given(argument, args, kwargs) for argument in written]) if written else ():
            if isinstance(tensor, torch.Tensor):
                self._before(tensor)
        returned = func(*args, **kwargs)
        if self._made is not None:
            self._made(func, returned)
        return returned


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


def _given(argument: tuple[int, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    place, name = argument
    return args[place] if place < len(args) else kwargs.get(name)


#: The offset, the sizes and the strides of a tensor.
_Form = tuple[int, torch.Size, tuple[int, ...]]


def _form(tensor: torch.Tensor) -> _Form:
    return int(tensor.storage_offset()), tensor.shape, tensor.stride()


@dataclass(frozen=True)
class Before:
    """What a storage held, and the form and version of the tensor through which it was written."""

    tensor: torch.Tensor
    content: torch.UntypedStorage
    form: _Form
    version: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Before:
        """What the storage of a tensor holds now."""
        # Tensors made under torch.inference_mode() have no version.
        version = None if tensor.is_inference() else tensor._version
        storage: Any = tensor.untyped_storage()  # whose clone has no types
        return cls(tensor, storage.clone(), _form(tensor), version)

    def restore(self) -> None:
        """Puts it back."""
        storage = self.tensor.untyped_storage()
        if storage.nbytes() != self.content.nbytes():
            storage.resize_(self.content.nbytes())
        storage.copy_(self.content)
        if _form(self.tensor) != self.form:  # x.t_(), x.unsqueeze_(0), x.resize_(3)
            with torch.no_grad():
                self.tensor.set_(storage, *self.form)
        if self.version is not None:  # a gradient that is still to be computed asks for it (torch 2.11 to 2.13)
            torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))


class UndoneWrites:
    """What calls write into memory that is older than they are is put back after each.

    It is copied when it is first written, for weights are large. That takes a look at each operator, some 50
    microseconds; those of calls that follow one which wrote nothing are not looked at.
    """

    def __init__(self, *, may_write: bool = True) -> None:
        """`may_write` is false where it is known that no call writes into anything."""
        self._before: dict[int, Before] = {}
        self._made: set[int] = set()
        self._writes_nothing = not may_write

    @contextmanager
    def call(self) -> Iterator[None]:
        """Runs a block with one call."""
        try:
            with nullcontext() if self._writes_nothing else self._watched():
                yield
            self._writes_nothing = not self._before
        finally:
            self._made.clear()
            with DeferredInterrupts():
                for before in self._before.values():
                    before.restore()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        # `torch.cond` and its kin compile themselves where a model runs, which they cannot do within a mode (torch 2.11
        # to 2.13).
        with torch.compiler.set_stance("force_eager"), Writes(self._keep, self._take_as_new):
            yield

    def has_written(self, tensor: torch.Tensor) -> bool:
        """Whether a call was seen to write into the memory of a tensor that is older than it."""
        return tensor.untyped_storage()._cdata in self._before

    def left(self, value: Any) -> Any:
        """What a value holds within the block, also behind it: a copy where the call wrote into memory that is older.

        What a call returns may lie there as well, as a state does that it was given and that it updates.
        """
        if not isinstance(value, torch.Tensor) or not has_memory(value):
            return value
        return value.detach().clone() if value.untyped_storage()._cdata in self._before else value

    def _keep(self, tensor: torch.Tensor) -> None:
        if not has_memory(tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._before and storage._cdata not in self._made:
            self._before[storage._cdata] = Before.of(tensor)

    def _take_as_new(self, func: Any, returned: Any) -> None:
        if _returns_aliases(func):
            return
        if type(returned) is torch.Tensor:
            if has_memory(returned):
                self._made.add(returned.untyped_storage()._cdata)
        else:
            tensors = (leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor))
            self._made.update(tensor.untyped_storage()._cdata for tensor in tensors if has_memory(tensor))


@functools.lru_cache(maxsize=4096)
def _returns_aliases(func: Any) -> bool:
    """Whether what an operator returns may lie in memory that it was given."""
    schema = getattr(func, "_schema", None)
    return schema is None or any(value.alias_info is not None for value in schema.returns)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has data of its own in one storage."""
    return tensor.layout == torch.strided and not tensor.is_meta and not hasattr(tensor, "fake_mode")
