"""Masks of bytes, any of which but 0 is true."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from called import CalledWithTwo
from exportguard import to_onnx

_SIZES = ((3, 4), (1, 2), (5, 3), (0, 4))


def as_in_eager_mode(function: Any, *, is_static: bool) -> None:
    model = CalledWithTwo(function).eval()
    axes: Any = None if is_static else ({0: "rows", 1: "columns"}, {0: "rows", 1: "columns"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says each time that bytes are deprecated
        made = to_onnx(model, (torch.randn(3, 4), torch.ones(3, 4, dtype=torch.uint8)), dynamic_shapes=axes)
        for sizes in _SIZES[:1] if is_static else _SIZES:
            x, mask = torch.randn(*sizes), torch.randint(0, 3, sizes, dtype=torch.uint8)
            wanted = model(x, mask)
            for got, want in zip(made.run({"x": x, "y": mask}).values(), wanted, strict=True):
                torch.testing.assert_close(got, want)


def chosen(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return torch.where(mask, x, -x), torch.where(mask[:1], x, 0.5), torch.where(mask > 1, x, x.new_zeros(()))


def taken(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return x[mask], x.t()[mask.t()] * 2


def chooses() -> None:
    for is_static in (False, True):
        as_in_eager_mode(chosen, is_static=is_static)


def takes() -> None:
    for is_static in (False, True):
        as_in_eager_mode(taken, is_static=is_static)


PROGRAMS = {"choices by bytes": chooses, "masks of bytes": takes}
