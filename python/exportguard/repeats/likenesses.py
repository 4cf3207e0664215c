"""Fake tensors like those that an operator call returned, made without running anything."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard import _core
from exportguard.repeats.keys import Local, appearance, constant_key
from exportguard.repeats.questions import REPLAYED


class Likeness:
    """What one result of a call was: the n-th value of its path, one of its arguments, or a tensor of a certain look.

    :raises UncomparableError: for a tensor whose look does not say all of it
    """

    __slots__ = (
        "_attributes", "_constant", "_device", "_mode", "_model", "_source", "_throws", "argument", "look", "value"
    )  # fmt: skip

    _LAYOUT = 3  # of what `appearance` has: sizes, strides and where it begins

    def __init__(self, value: Local, tensor: Any, argument: int | str | None, *, is_known: bool = False) -> None:
        self.value = value
        self.argument = argument
        self._constant = _own(tensor.constant)
        value_known = () if self._constant is None else constant_key(self._constant)
        self.look = (*value_known, *appearance(tensor, is_known=is_known))
        # Not held, for the model may ask whether it lives: `weakref.ref(tensor)() is None`.
        self._source = weakref.ref(tensor)
        self._model = _copy(tensor)
        self._mode = tensor.fake_mode
        self._device = tensor.fake_device
        self._throws = not tensor.fake_mode._allow_unsafe_data_ptr_access
        self._attributes: dict[str, Any] = {}

    def settle(self, instead: Any = None) -> None:
        """Copies the tensor once more, or `instead`; `make` needs that.

        Not before the block has used it: the flags of its layout are found out when they are asked for, and a copy has
        those that are known by then.
        """
        source = self._source() if instead is None else instead
        if source is not None and self._is_as_returned(source):
            self._model = _copy(source)

        # Which attributes a fake tensor has differs between versions of torch.
        self._attributes = {**FakeTensor(self._mode, self._model, self._device).__dict__, REPLAYED: True}

    @property
    def is_settled(self) -> bool:
        """Whether `make` can be called."""
        return bool(self._attributes)

    def look_again(self, tensor: Any) -> None:
        """Copies a tensor once more, if it is the one that this was made of and more is known of its layout."""
        if self._source() is tensor and self._is_as_returned(tensor):
            self._model = _copy(tensor)

    def _is_as_returned(self, tensor: Any) -> bool:
        """Whether the tensor lies as the result did: `squeeze_` and its kin give it another shape in place."""
        seen = appearance(tensor, is_known=True)
        return seen[: self._LAYOUT] == self.look[-len(seen) :][: self._LAYOUT]

    def make_in_own_memory(self) -> Any:
        """Another tensor of this look, which shares its memory with no other."""
        with torch._C._DisableTorchDispatch():
            made = self.make(_core.alike_in_own_memory(self._model))
        del made.__dict__[REPLAYED]
        return made

    def make(self, model: Any = None) -> Any:
        """Another tensor of this look; of another `model`, as a fake tensor that looks like it."""
        requires_grad = self.look[-1]
        made = torch.Tensor._make_subclass(
            FakeTensor,
            self._model if model is None else model,
            requires_grad,
            dispatch_device=True,
            device_for_backend_keys=self._device,
        )
        if self._throws:
            torch._C._set_throw_on_mutable_data_ptr(made)
        else:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
        made.__dict__.update(self._attributes)
        if self._constant is not None:
            made.constant = self.constant()
            self._mode.fake_tensor_converter.add_constant_storage_mapping(made)  # writes into it are seen by that
        return made

    def constant(self) -> torch.Tensor | None:
        """The value of the tensor in a memory of its own, where torch knows it while it traces."""
        return _own(self._constant)


def _own(constant: torch.Tensor | None) -> torch.Tensor | None:
    if constant is None:
        return None
    with torch._C._DisableTorchDispatch():
        return constant.clone()


def _copy(tensor: Any) -> Any:
    """One that holds the memory, and not the tensor."""
    with torch._C._DisableTorchDispatch():
        return tensor.detach()
