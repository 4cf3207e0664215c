"""Axes of different names that are equal in the example: each may be of one entry beside the other, which is broadcast.

torch takes such axes for one as soon as one of them is made the other. What the file then does with one entry is what
eager mode does, or the run stops; it gives nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from called import CalledWithTwo
from exportguard import to_onnx


def written(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    z[:] = y
    return z * x


def written_to_a_part(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros(x.shape[0], x.shape[1] + 1, x.shape[2])
    z[:, 1:] = y
    return z


def written_to_a_row(x: Tensor, y: Tensor) -> Tensor:
    """Of a tensor with another axis of one entry before those of the row."""
    z = torch.zeros(2, *x.shape)
    z[1] = y[None]
    z[None, 0] = y
    return z


def added_into(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z += y
    return z


#: What makes of `y` something of the sizes of `x`; no size of these keeps the file from what eager mode does.
EXPANDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "expand_as": lambda x, y: torch.cat([x, y.expand_as(x)], -1),
    "expand": lambda x, y: torch.cat([x, y.expand(x.shape[0], x.shape[1], -1)], -1),
    "the rows alone": lambda x, y: torch.cat([x, y.expand(x.shape[0], *y.shape[1:])], 1),
    "broadcast_to": lambda x, y: torch.stack([x, torch.broadcast_to(y, x.shape)]),
    "flat": lambda x, y: y.expand_as(x).reshape(-1),
    "an index": lambda x, y: x.gather(1, (y > 0).long().expand_as(x)),
    "copied": lambda x, y: torch.zeros_like(x).copy_(y) - x,
    "written": written,
    "written to a part": written_to_a_part,
    "written to a row": written_to_a_row,
    "added": lambda x, y: torch.cat([x, x * 0 + y], -1),
    "added into": added_into,
    "chosen": lambda x, y: torch.where(x > 0, x, y),
    "filled": lambda x, y: x.masked_fill(y > 0, 0.0),
    "multiplied": lambda x, y: x @ y.transpose(1, 2),
    "summed products": lambda x, y: torch.einsum("bld,bmd->blm", x, y),
    "attended": lambda x, y: functional.scaled_dot_product_attention(x, y, y),
}
#: Of these the file has the sizes of the example's two: it stops where one of them is of one entry.
BOTH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "both": lambda x, y: torch.cat(torch.broadcast_tensors(x, y), -1),
    "both in one": lambda x, y: torch.stack(torch.broadcast_tensors(x, y)),
}
_SIZES = ((2, 5), (3, 4), (1, 5), (3, 1), (1, 1))


def outcomes(compute: Callable[[Tensor, Tensor], Tensor]) -> dict[str, list[Any]]:
    """At which sizes the file is right, wrong, or stops, where eager mode gives something."""
    model = CalledWithTwo(compute).eval()
    axes: Any = ({0: "batch", 1: "length"}, {0: "texts", 1: "tokens"})
    file = to_onnx(model, (torch.randn(2, 5, 4), torch.randn(2, 5, 4)), dynamic_shapes=axes)
    found: dict[str, list[Any]] = {"right": [], "wrong": [], "stops": []}
    for sizes in itertools.product(_SIZES, repeat=2):
        x, y = (torch.randn(*each, 4) for each in sizes)
        try:
            wanted = model(x, y)
        except RuntimeError:
            continue
        try:
            (got,) = file.run({"x": x, "y": y}).values()
        except Exception:
            found["stops"].append(sizes)
            continue
        is_right = got.shape == wanted.shape and torch.allclose(got, wanted, atol=1e-5)
        found["right" if is_right else "wrong"].append(sizes)
    return found


@pytest.mark.parametrize("name", EXPANDED)
def test_one_entry_is_expanded_as_in_eager_mode(name: str) -> None:
    found = outcomes(EXPANDED[name])
    assert found["wrong"] == []
    assert found["stops"] == []
    assert len(found["right"]) >= len(_SIZES)


@pytest.mark.parametrize("name", BOTH)
def test_what_is_broadcast_both_ways_is_never_wrong(name: str) -> None:
    found = outcomes(BOTH[name])
    assert found["wrong"] == []
    assert len(found["right"]) >= len(_SIZES)
