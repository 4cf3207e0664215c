"""What a model may ask of a tensor, or set, beside calling operators.

A tensor that was replayed looks like an earlier one, but has a memory, views and versions of its own. Whoever asks for
those is told the truth by an export that traces everything.
"""

from __future__ import annotations

from typing import Any

import torch

from exportguard.repeats.counts import Counts

_Tensor: Any = torch.Tensor

#: What a tensor that was replayed cannot answer, as the modes of torch's functions see it.
_OF_ITSELF = frozenset(
    {
        _Tensor.grad_fn.__get__,
        _Tensor.is_leaf.__get__,
        _Tensor.output_nr.__get__,
        _Tensor._is_view,
        _Tensor.data_ptr,
        _Tensor.is_set_to,
        _Tensor.storage,
        _Tensor.untyped_storage,
    }
)

#: The tensor that the memory is of, which may be another one that was replayed.
_BASE = _Tensor._base.__get__

#: How often the memory was written: all tensors that were replayed for one call count as one here.
_VERSION = _Tensor._version.__get__

#: What changes what a tensor is without a call of an operator.
SETTERS = frozenset({_Tensor.requires_grad.__set__})

#: What torch's tracer does not see: it goes on with the old elements.
_DATA = _Tensor.data.__set__

#: All that is looked at; most of it is compiled, as most of what a model calls.
WATCHED = _OF_ITSELF | {_BASE, _VERSION, _DATA} | SETTERS

#: An attribute of the tensors that were replayed.
REPLAYED = "_exportguard_is_replayed"


class UnansweredError(Exception):
    """A question whose answer a replayed tensor does not know."""


def is_replayed(tensor: object) -> bool:
    """Whether its memory is none of the model's."""
    return REPLAYED in getattr(tensor, "__dict__", ())


def is_unanswered(func: object, args: tuple[Any, ...], counts: Counts) -> bool:
    """Whether it asks what depends on calls that were replayed."""
    if func in _OF_ITSELF:
        return any(map(is_replayed, args))
    return func in (_BASE, _VERSION) and counts.replayed > 0


def sets_its_own_data(func: object, args: tuple[Any, ...]) -> bool:
    """Whether it is `x.data = x`, which changes nothing, and is a call of an operator for torch.

    :raises RuntimeError: it is `x.data = y`: the tensor is another one from there on, and its node in the graph is not
    """
    if func != _DATA:
        return False
    if args[0] is not args[1]:
        raise RuntimeError("the data of a tensor is set while the model is traced, which no operator of a graph does")
    return True


def name_of(func: Any) -> str:
    """`Tensor.is_leaf` for what reads it."""
    return f"Tensor.{getattr(func, '__self__', func).__name__}"
