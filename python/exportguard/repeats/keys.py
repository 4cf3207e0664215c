"""When two operator calls mean the same: the keys that they are looked up by."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

#: What a symbolic size, number or condition is.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: Compared as they are: their equality and their class tell all that an operator can see of them.
_PLAIN = frozenset({int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_LISTS = frozenset({tuple, list, torch.Size})

#: They change what a tensor is, not its elements, and carry no tag that says so.
_RESHAPING = frozenset({"set_", "resize_", "resize_as_", "requires_grad_", "set_data", "detach_", "rename_"})


class UncomparableError(Exception):
    """Something that no key can be made of; its call, and the rest of the block, is traced."""


class Local:
    """The n-th value of a path: what it takes from outside at its first use, or a node of its own.

    There is one object for each number, so that comparing keys is comparing pointers.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    @staticmethod
    def of(number: int) -> Local:
        """The object for a number."""
        while len(_LOCALS) <= number:
            _LOCALS.append(Local(len(_LOCALS)))
        return _LOCALS[number]

    def __repr__(self) -> str:
        return f"%{self.number}"


_LOCALS: list[Local] = []


def scalar_key(value: Any) -> Any:
    """The key of a number, text, size or option, or of lists of them.

    :raises UncomparableError: for anything else
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is bool or kind is float:
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
        return kind, value, kind is float and math.copysign(1.0, value)
    if kind in SYMBOLIC:
        return kind, value.node.expr
    if kind in _LISTS:
        return tuple([scalar_key(item) for item in value])
    raise UncomparableError(kind.__name__)


def _size_key(size: Any) -> Any:
    """Expressions have what torch has found equal replaced, so a path that a later guard changed is missed."""
    return size if type(size) is int else size.node.expr


def appearance(tensor: object, *, is_known: bool = False) -> tuple[Any, ...]:
    """All that a fake kernel and the model's Python can see of a fake tensor.

    :param is_known: whether its value, if it is a constant, is told by something else
    :raises UncomparableError: a tensor of a class with its own operators, a constant, one that is sparse, or seen
        through a lazy conjugation or negation
    """
    if type(tensor) is not FakeTensor or tensor.pytype is not None:
        raise UncomparableError(f"a {type(tensor).__name__} with operators of its own")
    if has_elements(tensor.constant) and not is_known:
        raise UncomparableError("a constant from outside")
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise UncomparableError("a tensor that is sparse or lazily conjugated")
    return (
        tuple([_size_key(size) for size in tensor.shape]),
        tuple([_size_key(stride) for stride in tensor.stride()]),
        _size_key(tensor.storage_offset()),
        tensor.dtype,
        tensor.fake_device,
        tensor.requires_grad,
    )


def has_elements(constant: torch.Tensor | None) -> bool:
    """Whether there is a value that torch knows while it traces; of a tensor without elements its look says all."""
    return constant is not None and constant.numel() > 0


_LONGEST_CONSTANT = 1024  # in bytes


def constant_key(tensor: object) -> tuple[Any, ...]:
    """The key of what `torch.tensor` has made before `aten.lift_fresh`: what it holds, as the bits of it.

    :raises UncomparableError: it holds much, or is none of torch's own tensors on the host
    """
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise UncomparableError("a constant of another class, layout or device")
    memory = tensor.untyped_storage()
    if memory.nbytes() > _LONGEST_CONSTANT:
        raise UncomparableError("a long constant")
    place = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return ctypes.string_at(memory.data_ptr(), memory.nbytes()), place, tensor.dtype, tensor.requires_grad


def changes_nothing(operator: Any, args: tuple[Any, ...]) -> bool:
    """Whether it takes a tensor without a gradient out of the graph of gradients, which `torch.tensor` does last."""
    return operator is torch.ops.aten.detach_.default and not args[0].requires_grad and args[0].is_leaf


def thread_state() -> tuple[Any, ...]:
    """What an operator's result depends on beside its arguments."""
    # Contexts of autocast are nodes of the graph; it may be set without a context, too.
    autocast = _autocast() if torch._C._is_any_autocast_enabled() else None
    return torch.is_grad_enabled(), torch.get_default_dtype(), autocast


def _autocast() -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    return tuple([(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices])


def is_comparable(operator: Any) -> bool:
    """Whether equal keys of two of its calls mean equal results.

    Not so for what reads elements, what makes a constant, and what changes the sizes of tensors in place or writes more
    than its first argument.
    """
    schema = getattr(operator, "_schema", None)
    if schema is None or operator in (torch.ops.aten.lift_fresh.default, torch.ops.aten.is_nonzero.default):
        return False
    if torch.Tag.data_dependent_output in operator.tags or torch.Tag.inplace_view in operator.tags:
        return False
    name = operator.overloadpacket.__name__
    return not schema.is_mutable or (_writes_first_alone(schema) and name not in _RESHAPING)


def _writes_first_alone(schema: Any) -> bool:
    """Whether it writes its first argument and returns it, as `x.add_(y)` does."""
    written = [position for position, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
    return written == [0] and len(schema.returns) == 1
