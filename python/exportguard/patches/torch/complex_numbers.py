"""Sizes beside complex tensors: torch's Python references make complex numbers of them, which are no symbols."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

# Without annotations in torch 2.11 to 2.13.
_sym_float: Callable[..., Any] = torch.sym_float


def _is_symbolic(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


def keeping_symbols(original: Callable[[torch.dtype], Callable[..., Any]]) -> Callable[[torch.dtype], Any]:
    """The maker of numbers of a dtype; of a complex one it leaves a symbolic number a float."""

    @functools.wraps(original)
    def dtype_to_type_ctor(dtype: torch.dtype) -> Callable[..., Any]:
        made = original(dtype)
        if not (isinstance(dtype, torch.dtype) and dtype.is_complex):
            return made
        return lambda number: _sym_float(number) if _is_symbolic(number) else made(number)

    return dtype_to_type_ctor


def _probe() -> Verdict:
    if hasattr(torch, "sym_complex"):
        return not_needed("there are symbolic complex numbers")
    return NEEDED


PATCHES = (
    Patch(
        name="sizes beside complex tensors",
        kind="torch",
        target="torch._prims_common.dtype_to_type_ctor",
        reason="a mean of complex numbers divides by complex(size), and the axis becomes a constant",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_prims_common/__init__.py#L1238",
        probe=_probe,
        replace=keeping_symbols,
    ),
)
