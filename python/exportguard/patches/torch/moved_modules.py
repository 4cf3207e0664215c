"""Modules that `forward` moves: `self.head = self.head.to(x.device)` is nothing where the module is there already.

`torch.nn.Module.to` makes every parameter anew, whether it changes or not, which a traced parameter does not take.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, does_not_fit


def where_it_is_not(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Module.to`, which leaves a module alone that has the dtype and is on the device already."""

    @functools.wraps(original)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # The parser of the arguments that torch.nn.Module.to itself calls, in torch 2.11 to 2.13.
        parsed: Any = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype, _, memory_format = parsed
        if memory_format is None and all(_is_there(tensor, device, dtype) for tensor in _tensors(self)):
            return self
        return original(self, *args, **kwargs)

    return to


def _tensors(module: torch.nn.Module) -> Any:
    return itertools.chain(module.parameters(), module.buffers())


def _is_there(tensor: torch.Tensor, device: torch.device | None, dtype: torch.dtype | None) -> bool:
    is_cast = dtype is not None and (tensor.is_floating_point() or tensor.is_complex())
    is_dtype = not is_cast or tensor.dtype == dtype
    return is_dtype and (device is None or tensor.device == _whole(device))


def _whole(device: torch.device) -> torch.device:
    """The device with its number, which `cuda` leaves out."""
    return torch.empty(0, device=device).device


def _probe() -> Verdict:
    return NEEDED if hasattr(torch._C._nn, "_parse_to") else does_not_fit("torch has no parser of these arguments")


PATCHES = (
    Patch(
        name="modules moved to where they are",
        kind="torch",
        target="torch.nn.Module.to",
        reason="every parameter is made anew, which a parameter that is traced does not take",
        upstream="https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/module.py",
        probe=_probe,
        replace=where_it_is_not,
    ),
)
