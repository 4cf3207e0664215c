"""Fake tensors of inputs, parameters and buffers, made like those of others of the same look.

A model of many layers has few different shapes. Torch finds out for each of its tensors, one by one, how it lies in
memory; here that is known once it is known of one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import DimDynamic

from exportguard.repeats.keys import Local, UncomparableError
from exportguard.repeats.known_axes import known_axes
from exportguard.repeats.likenesses import Likeness

_OF_NO_PATH = Local.of(0)
_CLASSES = (torch.Tensor, torch.nn.Parameter)

#: An attribute of torch's converter.
_HELD = "_exportguard_copies"


class Copies:
    """The fake tensors that one converter of torch has made, by the look of what they stand for."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self._known: dict[Hashable, Likeness] = {}

    @staticmethod
    def of(converter: Any) -> Copies:
        """Those of a converter, which lie in it: they know it, and a weak key would keep what its value knows."""
        held = vars(converter)
        if _HELD not in held:
            held[_HELD] = Copies(converter)
        copies: Copies = held[_HELD]
        return copies

    def fake_of(self, tensor: torch.Tensor, key: Hashable) -> FakeTensor | None:
        """A fake tensor like that of the first tensor with the key; None if torch must make it.

        It is entered where torch enters those that it makes: by the tensor, and by its memory.
        """
        likeness = self._known.get(key)
        meta = self._converter.meta_converter
        storage = tensor.untyped_storage()
        if likeness is None or storage in meta.describer.lookup_storage:
            return None
        fake: FakeTensor = likeness.make_in_own_memory()
        if type(tensor) is torch.nn.Parameter:
            fake._is_param = True
        meta.storage_memo[meta.describer.get_storage_id(storage)] = fake.untyped_storage()
        self._converter.set_tensor_memo(tensor, fake)
        return fake

    def note(self, key: Hashable, fake: Any) -> None:
        """What torch made for a tensor with a key."""
        if key in self._known or type(fake) is not FakeTensor or not fake.is_leaf or fake._is_view():
            return
        try:
            likeness = Likeness(_OF_NO_PATH, fake, None)
        except UncomparableError:
            return
        fake.numel()  # a copy has what was computed by then, and a product of symbols takes long
        likeness.settle()
        self._known[key] = likeness


def look_of(tensor: torch.Tensor) -> Hashable | None:
    """What says all of a tensor that its fake one shows, but for its sizes being symbolic; None for what needs torch.

    That is a view, a part of some memory, a tensor with a gradient, or one of a class or layout of its own.
    """
    if type(tensor) not in _CLASSES or tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda"):
        return None
    if tensor._is_view() or not tensor.is_leaf or not tensor.is_contiguous() or tensor.storage_offset() != 0:
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.is_inference() or tensor.grad is not None:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
        return None
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        return None
    if "_is_buffer" in tensor.__dict__:
        return None
    return type(tensor), tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad


def symbols_of_axes(context: Any) -> Mapping[int, Any] | None:
    """The symbols of the axes that torch was asked to keep symbolic; None if torch has to make some."""
    if context is None:
        return {}
    known = known_axes()
    dynamic = {axis for axis, kind in enumerate(context.dynamic_sizes) if kind is not DimDynamic.STATIC}
    return known if known is not None and dynamic == known.keys() else None
