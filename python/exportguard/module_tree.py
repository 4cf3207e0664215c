"""The modules, weights and buffers of a module by their names, found in one walk.

`torch.nn.Module.named_modules` is a generator within a generator for each level, and a model that is called again and
again is gone through before and behind each call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator

import torch
from torch.nn import Module

_OWN = ("modules", "named_modules", "parameters", "named_parameters", "buffers", "named_buffers", "_named_members")


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
    found: dict[Module, str] = {}
    waiting = [("", module)]
    while waiting:
        name, one = waiting.pop()
        if one in found:
            continue
        if not _is_plain(type(one)):
            return list(module.named_modules())
        found[one] = name
        if one._modules:
            begin = f"{name}." if name else ""
            waiting += [(begin + part, inner) for part, inner in reversed(one._modules.items()) if inner is not None]
    return [(name, one) for one, name in found.items()]


def named_parameters(module: Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Those of `module.named_parameters()`."""
    return _named("_parameters", module) if _is_plain(type(module)) else module.named_parameters()


def named_buffers(module: Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of `module.named_buffers()`."""
    return _named("_buffers", module) if _is_plain(type(module)) else module.named_buffers()


def _named(kind: str, module: Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    met: set[torch.Tensor] = set()
    for name, one in named_modules(module):
        for part, tensor in getattr(one, kind).items():
            if tensor is not None and tensor not in met:
                met.add(tensor)
                yield f"{name}.{part}" if name else part, tensor
