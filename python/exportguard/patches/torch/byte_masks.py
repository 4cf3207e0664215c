"""Masks of bytes, as models older than bool tensors have them: torch computes with them, and its fake kernels refuse.

`torch.where(mask, a, b)` and `x[mask]` with a uint8 mask warn in eager mode that they are deprecated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

if TYPE_CHECKING:
    from exportguard._core import Changes

_WHERE = torch.ops.aten.where.self
_REFERENCE = "torch._refs.where"
_INDEX = "torch._meta_registrations.meta_index_Tensor"


def _as_flags(mask: Any) -> Any:
    is_of_bytes = isinstance(mask, torch.Tensor) and mask.dtype == torch.uint8
    return mask.to(torch.bool) if is_of_bytes else mask


def where_of_sizes(mode: Any, condition: torch.Tensor, one: Any, other: Any) -> torch.Tensor:
    """The kernel where sizes are symbolic, which torch 2.11 to 2.13 ask for first; theirs is its reference as well."""
    with mode:
        return torch._refs.where(_as_flags(condition), one, other)  # type: ignore[no-any-return]


def where_of_numbers(mode: Any, func: Any, condition: torch.Tensor, one: Any, other: Any) -> Any:
    """The kernel where they are numbers; others than those of bytes are torch's."""
    if condition.dtype != torch.uint8:
        return NotImplemented
    with mode:
        return func(_as_flags(condition), one, other)


def _apply(changes: Changes) -> None:
    from torch._subclasses.fake_impls import get_fast_op_impls, op_implementations_dict

    changes.set_item(get_fast_op_impls(), _WHERE, where_of_sizes)
    changes.set_item(op_implementations_dict, _WHERE, where_of_numbers)


def indexing_by_bytes(original: Callable[..., Any]) -> Callable[..., Any]:
    """How the result of `x[mask]` looks."""

    @functools.wraps(original)
    def meta_index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
        return original(self, [*map(_as_flags, indices)])

    return meta_index


PATCHES = (
    Patch(
        name="choices by bytes",
        kind="torch",
        target="torch.where",
        reason="torch.where takes a mask of bytes, and the fake kernel does not",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_refs/__init__.py",
        probe=expecting(
            Expected(
                path=_REFERENCE,
                parameters="pred, a, b",
                has=("pred.dtype is torch.bool", "prims.where(pred, a, b)"),
            )
        ),
        apply=_apply,
    ),
    Patch(
        name="masks of bytes",
        kind="torch",
        target=_INDEX,
        reason="x[mask] takes a mask of bytes, and the fake kernel does not",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_meta_registrations.py",
        probe=expecting(
            Expected(
                path=_INDEX,
                parameters="self, indices",
                has=("index.dtype in [torch.long, torch.int, torch.int8, torch.bool]",),
            )
        ),
        replace=indexing_by_bytes,
    ),
)
