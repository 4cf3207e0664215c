"""Operators on lists of tensors, `torch._foreach_*`, as one operator for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
_PREFIX = "aten::_foreach_"


def _with_factor(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`addcmul` and `addcdiv`, whose factor is a number, and in lists may be an element of a tensor."""

    def call(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, value: Any = 1) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            return function(x, first, second, value=value)
        joined = first * second if function is torch.addcmul else first / second
        return (x + value * joined).to(x.dtype)

    return call


def _norm(x: torch.Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x, ord, dtype=dtype)
    return norm


def _sum_of_powers(x: torch.Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    wide = x if dtype is None else x.to(dtype)
    return wide.abs().pow(ord).sum()


def _limited(
    by_number: Callable[..., torch.Tensor], by_tensor: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    return lambda x, limit: (by_tensor if isinstance(limit, torch.Tensor) else by_number)(x, limit)


def _copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return source.to(x.dtype).expand_as(x).clone()


#: Where the operator of one tensor has another name or other arguments.
_OF_ONE: dict[str, Callable[..., Any]] = {
    "addcmul": _with_factor(torch.addcmul),
    "addcdiv": _with_factor(torch.addcdiv),
    "norm": _norm,
    "powsum": _sum_of_powers,
    "zero": torch.zeros_like,
    "copy": _copied,
    "maximum": _limited(torch.clamp_min, torch.maximum),
    "minimum": _limited(torch.clamp_max, torch.minimum),
}


def of_each(operator: torch._ops.OpOverload) -> Callable[..., list[torch.Tensor]] | None:
    """What makes the list of tensors that `operator` makes; None if it is no operator on lists of tensors."""
    if not operator._schema.name.startswith(_PREFIX):
        return None
    name = operator._schema.name.removeprefix(_PREFIX)
    of_one = _OF_ONE.get(name) or getattr(_aten, name, None)
    if of_one is None:
        return None
    parameters = operator._schema.arguments
    are_lists = [isinstance(parameter.type, torch.ListType) for parameter in parameters]
    are_factors = [
        parameter.name == "scalars" and not is_list for parameter, is_list in zip(parameters, are_lists, strict=True)
    ]

    def call(*arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        count = len(next(value for value, is_list in zip(arguments, are_lists, strict=False) if is_list))

        def of(value: Any, is_list: bool, is_factor: bool, k: int) -> Any:
            return value[k] if is_list or is_factor else value

        return [
            of_one(
                *(of(*each, k) for each in zip(arguments, are_lists, are_factors, strict=False)),
                **keywords,
            )
            for k in range(count)
        ]

    return call
