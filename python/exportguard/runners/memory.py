"""What a runtime can read of a tensor: numbers that lie in memory, one after the other."""

from __future__ import annotations

import torch

from ..errors import InvalidArgumentError


def require_readable(name: str, tensor: torch.Tensor) -> None:
    """Raises unless the tensor has numbers at an address, which a runtime is given and follows.

    >>> require_readable("x", torch.zeros(2))

    Raises:
        InvalidArgumentError: with what the tensor is, and what to pass.
    """
    what = _unreadable(tensor)
    if what is not None:
        raise InvalidArgumentError(f"input {name} must be a plain tensor with its numbers in memory, got {what}")


def _unreadable(tensor: torch.Tensor) -> str | None:
    """What it is instead; fake tensors are of a class with operators of its own."""
    if tensor.is_nested:
        return "a nested one; pass torch.nested.to_padded_tensor(x, 0) and a mask"
    if tensor.is_meta:
        return "one on the meta device, which has none; pass one with data"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(tensor).__name__}, which stands for others; pass one with data"
    if tensor.is_quantized:
        return "a quantized one; pass x.dequantize(), or x.int_repr()"
    if tensor.layout is not torch.strided:
        return f"one of the layout {tensor.layout}; pass x.to_dense()"
    return None
