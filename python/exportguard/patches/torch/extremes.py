"""`max` and `min` of two operands, which torch.export computes while it traces: they give one of the two.

See `exportguard.rewrites.extremes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch
from exportguard.rewrites.extremes import extreme
from exportguard.rewrites.numbers import full_like, kinds_of, may_be

_TARGET = "torch._export.non_strict_utils._tensor_min_max"


def of_python(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in for both functions, told apart by the torch function that it would call."""

    @functools.wraps(original)
    def min_max(*args: Any, real_callable: Any, tensor_callable: Any, **kwargs: Any) -> Any:
        if len(args) != 2 or kwargs:
            return original(*args, real_callable=real_callable, tensor_callable=tensor_callable, **kwargs)
        found = extreme(*args, is_max=tensor_callable is torch.maximum, python=real_callable, like=full_like)
        number = next((operand for operand in args if type(operand) is int), None)
        is_tensor = isinstance(found, torch.Tensor) and found.is_floating_point()
        return may_be(found, kinds_of(number)) if is_tensor and number is not None else found

    return min_max


PATCHES = (
    Patch(
        name="the one of two that max and min give",
        kind="torch",
        target=_TARGET,
        awaits="torch._export.non_strict_utils",
        reason="max(n, 0.5) of a size is a float whatever it gives, and NaN wins where Python keeps the first operand",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/non_strict_utils.py",
        versions="torch 2.11 to 2.13",
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="args, real_callable, tensor_callable, kwargs",
                has=("torch.clamp(arg1, **kwarg)", "torch.sym_max(arg1, arg2)"),
            )
        ),
        replace=of_python,
    ),
)
