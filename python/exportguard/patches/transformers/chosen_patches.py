"""Patches of a picture that no word of its text covers, moved to the front: for all pictures at once, at full length.

The models take them picture by picture, which fixes how many pictures there are and needs to know which patches it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange


class Chosen(NamedTuple):
    """Rows of values, and which of them count."""

    values: torch.Tensor
    which: torch.Tensor


def ones_of(chosen: Chosen, dtype: torch.dtype) -> Chosen:
    """A one for each that counts."""
    return Chosen(torch.ones_like(chosen.which, dtype=dtype), chosen.which)


def in_front(chosen: Chosen, length: Any) -> torch.Tensor:
    """Those that count in their order, with zeros behind them up to `length`."""
    values, which = chosen
    missing: Any = length - which.shape[1]
    if missing > 0:
        behind = [0, 0] * (values.dim() - 2) + [0, missing]
        values, which = torch.nn.functional.pad(values, behind), torch.nn.functional.pad(which, (0, missing))
    order = (~which).long().sort(dim=1, stable=True).indices[:, :length]
    counts = which.long().sum(1, keepdim=True)
    places = torch.arange(order.shape[1], device=order.device)
    moved = values[torch.arange(order.shape[0], device=order.device)[:, None], order]
    keeps = (places < counts).view(*order.shape, *[1] * (values.dim() - 2))
    return torch.where(keeps, moved, 0)


#: Lists with an entry for each picture become two tensors, and what is made of them one. A one for each patch is
#: written in the words of transformers 5, and of 4.
AllPictures = exchange(
    "AllPictures",
    ("$rows, $columns = zip(*$places)", "$rows, $columns = $places.unbind(-1)"),
    ("torch.arange(len($points))", "torch.arange($points.shape[0])"),
    ("[$values[i][$which[i]] for i in range(len($which))]", "Chosen($values, $which)"),
    (
        "[torch.ones(item.size(0), dtype=$mask.dtype, device=$mask.device) for item in $chosen]",
        "ones_of($chosen, $mask.dtype)",
    ),
    ("[torch.tensor([1] * len(item)).to($mask) for item in $chosen]", "ones_of($chosen, $mask.dtype)"),
    ("torch.stack([pad_sequence(item, $length, $zero) for item in $chosen])", "in_front($chosen, $length)"),
)


_replace = rewrite(AllPictures, Chosen=Chosen, in_front=in_front, ones_of=ones_of)


PATCHES = (
    construct_patch(
        name="patches that no word covers",
        marker=r"\w+, \w+ = zip\(\*ind\)",
        mentions=(" = zip(*ind)",),
        replace=_replace,
        reason="the lists with an entry for each picture fix how many there are, and need to know which patches it is",
        upstream="https://github.com/pytorch/pytorch/issues/147096",
    ),
)
