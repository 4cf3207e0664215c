"""Large weights as ones of low rank, which are quicker to multiply with, while a model and its program are compared.

Whether a program does what its model does at other sizes is no matter of which weights they have. So both are run with
others: a weight of `K x N` is taken for the product of a `K x k` matrix of signs, by which the `K` entries of a row are
added up in `k` sums, and its first `k` rows. Each entry of a row still counts, what comes of it has the magnitude that
it has with the weight itself, and a small part of the weight is read.

Two sides that use a weight in other ways (one splits what it sums over) see two other weights: where they differ they
are to be compared with those they have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

_RANK = 64
_LEAST_GAIN = 4  # times fewer rows: below that there is nothing to gain
_LEAST_ENTRIES = 2**16
_SEED = 0x51675


class LowRankWeights(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Products with one of these weights, or with a view of one, are those with weights of low rank."""

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: With the weights, so that no other tensor has their memory.
        self._weights = {weight.untyped_storage().data_ptr(): weight for weight in weights if _is_large(weight)}
        self._rows: dict[Any, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operands = _OPERANDS.get(func)
        if operands is not None and (found := operands(self._product, *args, **kwargs)) is not None:
            return found
        return func(*args, **kwargs)

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor | None:
        """That of two matrices, or of as many of them; None if neither is a weight of many rows."""
        if self._is_weight(right):
            return _summed(left) @ self._first_rows(right)
        if self._is_weight(left):
            return (_summed(right.mT) @ self._first_rows(left.mT)).mT.contiguous()
        return None

    def _is_weight(self, matrix: torch.Tensor) -> bool:
        return _is_large(matrix) and matrix.untyped_storage().data_ptr() in self._weights

    def _first_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """Those of a weight that is written into are read again."""
        version = None if weight.is_inference() else weight._version
        key = weight.data_ptr(), weight.dtype, weight.shape, weight.stride(), version
        if key not in self._rows:
            self._rows[key] = weight[..., :_RANK, :].contiguous()
        return self._rows[key]


def _is_large(weight: torch.Tensor) -> bool:
    """Whether a tensor has as many rows, in both ways that it may be read, as it is worth to leave some out."""
    is_plain = type(weight) in (torch.Tensor, torch.nn.Parameter) and weight.layout == torch.strided
    return (
        is_plain
        and weight.is_floating_point()
        and weight.numel() >= _LEAST_ENTRIES
        and weight.dim() >= 2
        and _is_long(weight)
    )


def _is_long(weight: torch.Tensor) -> bool:
    return min(weight.shape[-2:]) >= _RANK * _LEAST_GAIN


def _summed(rows: torch.Tensor) -> torch.Tensor:
    """The entries of every row in as few sums as the rank is, each with a sign, so that a mean of zero is not lost."""
    length = rows.shape[-1]
    signed = rows * _signs(length).to(rows)
    signed = torch.nn.functional.pad(signed, (0, -length % _RANK))
    return signed.reshape(*signed.shape[:-1], signed.shape[-1] // _RANK, _RANK).sum(-2)


@functools.lru_cache(maxsize=64)
def _signs(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(0, 2, (length,), generator=generator) * 2 - 1


_Product = Callable[[torch.Tensor, torch.Tensor], "torch.Tensor | None"]


def _matmul(product: _Product, left: Any, right: Any) -> torch.Tensor | None:
    return product(left, right)


def _with_added(product: _Product, added: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    found = product(left, right)
    return None if found is None else found * alpha + added * beta


def _linear(product: _Product, rows: Any, weight: Any, bias: Any = None) -> Any:
    found = product(rows, weight.mT) if weight.dim() > 1 else None
    return found if found is None or bias is None else found + bias


#: What `matmul`, `linear` and `einsum` come down to (the overloads of ATen, torch 2.11 to 2.13); `linear` itself in
#: inference mode alone.
_OPERANDS: dict[Any, Callable[..., Any]] = {
    _aten.mm.default: _matmul,
    _aten.bmm.default: _matmul,
    _aten.addmm.default: _with_added,
    _aten.baddbmm.default: _with_added,
    _aten.linear.default: _linear,
}
