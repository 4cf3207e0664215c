"""The modules, weights and buffers of a module by their names, found in one walk in C++.

A model that is called again and again is gone through before and behind each call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import Module

from exportguard import _core

#: What lists modules, or says which are the same.
_OWN = (
    "modules",
    "named_modules",
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "_named_members",
    "__eq__",
    "__hash__",
)


def _lists_as_torch(kind: type) -> bool:
    return all(getattr(kind, name) is getattr(Module, name) for name in _OWN)


#: Whether modules of a class list what they hold as torch does; others are asked themselves.
_is_plain: Callable[[type], bool] = functools.cache(_lists_as_torch)


def without_wrappers(module: Module) -> Module:
    """The module that `torch.compile`, `DataParallel` or `DistributedDataParallel` was made of.

    What they compute is the same, and its `forward` alone has names for its arguments.
    """
    compiled = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    while True:
        if isinstance(module, compiled):
            module = module._orig_mod
        elif isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            module = module.module
        else:
            return module


def named_modules(module: Module) -> list[tuple[str, Module]]:
    """Those of `module.named_modules()`, in its order: each once, under its first name.

    >>> layer = torch.nn.Linear(1, 1)
    >>> [name for name, _ in named_modules(torch.nn.Sequential(layer, torch.nn.Sequential(layer, torch.nn.ReLU())))]
    ['', '0', '1', '1.1']
    """
    found = _core.named_modules(module, _is_plain)
    return list(module.named_modules()) if found is None else found


def named_parameters(module: Module) -> Sequence[tuple[str, torch.nn.Parameter]]:
    """Those of `module.named_parameters()`."""
    found: Any = _core.named_tensors(module, "_parameters", _is_plain)
    return list(module.named_parameters()) if found is None else found


def named_buffers(module: Module) -> Sequence[tuple[str, torch.Tensor]]:
    """Those of `module.named_buffers()`."""
    found = _core.named_tensors(module, "_buffers", _is_plain)
    return list(module.named_buffers()) if found is None else found
