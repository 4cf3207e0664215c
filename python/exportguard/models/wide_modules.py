"""Modules that stay in float32 within a model of half precision.

What sums many terms, or grows beyond 65,504, is not computed in float16: a module that is kept takes its inputs in
float32 and returns the dtype of the model, in eager as in every file that is made of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.errors import InvalidArgumentError

_WIDE = torch.float32
_PLAIN = (torch.Tensor, int, float, bool, str, type(None), torch.dtype, torch.device)


def wide_modules(model: torch.nn.Module, patterns: Sequence[str]) -> Mapping[str, torch.nn.Module]:
    """The modules whose names fit one of the patterns (`*` stands for anything), without those that lie in another.

    Raises:
        InvalidArgumentError: a pattern that fits none, with the names that are like it.
    """
    names = [name for name, _ in model.named_modules() if name]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3]
            raise InvalidArgumentError(
                f"keep_float32: no module of {type(model).__name__} is called {pattern!r}; there are {', '.join(near)} "
                f"({len(names)} in all)"
            )
    found: dict[str, torch.nn.Module] = {}
    for name in names:
        is_within = any(name.startswith(f"{outer}.") for outer in found)
        if not is_within and any(fnmatchcase(name, pattern) for pattern in patterns):
            found[name] = model.get_submodule(name)
    return found


def is_kept(name: str, kept: Mapping[str, torch.nn.Module]) -> bool:
    """Whether a weight of this name lies in a module that is kept."""
    return any(name.startswith(f"{outer}.") for outer in kept)


def narrow(model: torch.nn.Module, dtype: torch.dtype, patterns: Sequence[str]) -> None:
    """Makes all numbers of a model `dtype`, but those of modules that fit a pattern, which are to be in float32.

    Raises:
        InvalidArgumentError: a pattern fits no module, or a weight lies within and outside of those that are kept.
    """
    kept = wide_modules(model, patterns)
    _require_own_weights(model, kept)
    for name, module in model.named_modules():
        if name in kept or is_kept(name, kept):
            continue
        for parameter in module.parameters(recurse=False):
            parameter.data = _as(parameter.data, dtype)
        for own, buffer in [*module.named_buffers(recurse=False)]:
            module._buffers[own] = _as(buffer, dtype)
    keep_wide(kept, dtype)


def keep_wide(kept: Mapping[str, torch.nn.Module], dtype: torch.dtype) -> None:
    """Lets modules in float32 take and return numbers of `dtype`."""
    for name, module in kept.items():
        module.register_forward_pre_hook(_widening(name, dtype), with_kwargs=True)
        module.register_forward_hook(_narrowing(dtype))


def _require_own_weights(model: torch.nn.Module, kept: Mapping[str, torch.nn.Module]) -> None:
    places: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    for names in places.values():
        inside = [name for name in names if is_kept(name, kept)]
        if inside and len(inside) < len(names):
            other = next(name for name in names if name not in inside)
            raise InvalidArgumentError(
                f"keep_float32: {inside[0]} is the same weight as {other}; keep {other.rpartition('.')[0]} as well"
            )


def _widening(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    def widen(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        for value in pytree.tree_leaves((args, kwargs), is_leaf=_is_object):
            if _is_object(value):
                raise InvalidArgumentError(
                    f"keep_float32: {name} ({type(module).__name__}) takes a {type(value).__name__}, which holds "
                    f"numbers of {str(dtype).removeprefix('torch.')}; name modules within it"
                )
        return pytree.tree_map_only(torch.Tensor, lambda x: x.to(_WIDE) if x.dtype == dtype else x, (args, kwargs))

    return widen


def _is_object(value: object) -> bool:
    """Whether this is no container of plain values, but has a life of its own, as a cache has."""
    return not isinstance(value, (*_PLAIN, tuple, list, dict))


def _narrowing(dtype: torch.dtype) -> Callable[..., Any]:
    def narrowed(module: torch.nn.Module, args: Any, output: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.dtype == _WIDE else x, output)

    return narrowed


def _as(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x
