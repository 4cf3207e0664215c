"""Weights that are tensors of tensors, such as torchao's quantized ones, as the plain tensors that they are made of."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_STATE = ("_parameters", "_buffers", "_modules")


def _of_tensors(module: torch.nn.Module) -> list[str]:
    """Names of the module's own parameters and buffers that consist of tensors."""
    own = itertools.chain(module._parameters.items(), module._buffers.items())
    is_made_of_tensors: Callable[[object], bool] = is_traceable_wrapper_subclass  # which tells mypy what cannot be
    return [name for name, tensor in own if tensor is not None and is_made_of_tensors(tensor)]


def _opened(module: torch.nn.Module, names: list[str]) -> None:
    # torch 2.11 to 2.13: what AOTInductor opens such weights with. It imports a lot, and few models have them.
    from torch._functorch._aot_autograd.subclass_parametrization import UnwrapTensorSubclass

    for name in names:
        parametrize.register_parametrization(module, name, UnwrapTensorSubclass())


def _kept(module: torch.nn.Module) -> tuple[Any, ...]:
    return (module, type(module), [dict(vars(module)[name]) for name in _STATE])


def _put_back(kept: tuple[Any, ...]) -> None:
    module, kind, dictionaries = kept
    module.__class__ = kind
    for name, before in zip(_STATE, dictionaries, strict=True):
        now = vars(module)[name]
        now.clear()
        now.update(before)


@contextlib.contextmanager
def plain_tensors(model: torch.nn.Module) -> Iterator[None]:
    """Every weight that consists of tensors is computed from them for the time of the block: torch.export traces what
    is done with the parts, and finds no weight in the whole. The model is as it was afterwards, to the same objects.
    """
    found = {module: names for module in model.modules() if (names := _of_tensors(module))}
    kept = [_kept(module) for module in found]
    try:
        for module, names in found.items():
            _opened(module, names)
        yield
    finally:
        for each in kept:
            _put_back(each)
