"""Tensors made of sizes: `torch.as_tensor([height, width])`, `x.new_tensor(x.shape)`.

torch.export keeps the sizes that `torch.tensor` is called with, and no others (torch 2.11 to 2.13). Nor does it where
a function of torch calls it: `torch.unravel_index(places, (height, width))`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

_Function = Callable[..., Any]


def _holds_sizes(data: object) -> bool:
    if isinstance(data, list | tuple):
        return any(map(_holds_sizes, data))
    return isinstance(data, torch.SymInt | torch.SymFloat | torch.SymBool)


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    return torch.tensor(data, dtype=dtype, device=device)


def _asarray(obj: Any, *, dtype: torch.dtype | None = None, device: Any = None, copy: object = None) -> torch.Tensor:
    return torch.tensor(obj, dtype=dtype, device=device)


def _new_tensor(like: torch.Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    return torch.tensor(data, dtype=dtype or like.dtype, device=like.device if device is None else device)


#: What takes the place of each function where it is called with sizes.
_MADE: dict[str, _Function] = {"as_tensor": _as_tensor, "asarray": _asarray, "new_tensor": _new_tensor}


def of_sizes(original: _Function) -> _Function:
    """The function, by way of `torch.tensor` where what it is called with holds sizes."""
    made = _MADE[original.__name__]

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_made = any(map(_holds_sizes, [*args, *kwargs.values()])) and not kwargs.get("requires_grad")
        if not is_made:
            return original(*args, **kwargs)
        kwargs.pop("requires_grad", None)
        return made(*args, **kwargs)

    return call


def unravelled(original: _Function) -> _Function:
    """The places in an array of these sizes, by their remainders from the last axis on; no tensor is made of sizes."""

    @functools.wraps(original)
    def unravel_index(indices: torch.Tensor, shape: Any) -> torch.Tensor:
        sizes = shape if isinstance(shape, list | tuple) else [shape]
        is_integer = not (indices.is_complex() or indices.is_floating_point() or indices.dtype == torch.bool)
        if not is_integer or not any(isinstance(size, torch.SymInt) for size in sizes):
            return cast(torch.Tensor, original(indices, shape))
        rest, places = indices.to(torch.int64), list[torch.Tensor]()
        for size in reversed(sizes):
            places.insert(0, rest % size)
            rest = rest // size
        return torch.stack(places, -1)

    return unravel_index


_UNRAVELLED = "torch.functional._unravel_index"

PATCHES = (
    Patch(
        name="tensors made of sizes",
        kind="torch",
        target=("torch.as_tensor", "torch.asarray", "torch.Tensor.new_tensor"),
        awaits="torch._export.non_strict_utils",
        reason="sizes that a tensor is made of become constants, and their axes with them",
        upstream="https://github.com/pytorch/pytorch/issues/143216",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(
                path="torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override",
                has=("func is torch.tensor", "return torch._refs.tensor, args, kwargs"),
            )
        ),
        replace=of_sizes,
    ),
    Patch(
        name="places in arrays of sizes",
        kind="torch",
        target=_UNRAVELLED,
        reason="the sizes of the array become constants, and their axes with them",
        upstream="https://github.com/pytorch/pytorch/issues/143216",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(
                path=_UNRAVELLED, parameters="indices, shape", has=("indices.unsqueeze(-1).floor_divide($of) % $by",)
            )
        ),
        replace=unravelled,
    ),
)
