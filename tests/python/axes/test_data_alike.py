"""Tests of sizes whose ways differ for few data: an example whose inputs are alike hides none of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from exportguard import to_onnx
from exportguard.axes.resizing import with_data_at_ends
from exportguard.errors import AxisError
from exportguard.inputs import CallInputs

ONES = torch.ones(5)
NONE = torch.zeros(5, dtype=torch.int64)
ALL = torch.ones(5, dtype=torch.bool)


def ignored(x: Tensor, labels: Tensor) -> Tensor:
    return x.masked_fill(labels == -100, 0)


def between(x: Tensor, start: Tensor, end: Tensor) -> Tensor:
    return torch.where(start <= end, x, 0)


def of_one_mask_alone(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x.masked_fill(a & ~b, 0)


def of_an_identity_and_a_mask(x: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill((ids == 5) & ~mask, 0)


def signs_behind_a_mask(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x + 1, x) > 0


#: What is done to more than eight entries, to fewer, and the example's inputs.
FORMS: dict[str, tuple[Any, Any, tuple[Tensor, ...]]] = {
    "a number below none": (ignored, lambda x, _: x * 1, (ONES, torch.arange(5))),
    "integers in an order": (between, lambda x, *_: x * 1, (ONES, NONE, NONE)),
    "masks that differ": (of_one_mask_alone, lambda x, *_: x * 1, (ONES, ALL, ALL)),
    "integers beside a mask": (of_an_identity_and_a_mask, lambda x, *_: x * 1, (ONES, NONE, ALL)),
    "signs beside a mask": (signs_behind_a_mask, lambda x, _: x > 0, (ONES, ~ALL)),
}


class Larger(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.large, self.small, _ = FORMS[name]
        self.identity = 5

    def forward(self, x: Tensor, y: Tensor, z: Tensor | None = None) -> Any:
        others = (y,) if z is None else (y, z)
        return self.large(x, *others) if x.shape[0] > 8 else self.small(x, *others)


@pytest.mark.parametrize("name", FORMS)
def test_ways_that_differ_for_few_data_are_told_apart(name: str) -> None:
    inputs = FORMS[name][2]
    shapes = {key: {0: "n"} for key, _ in zip("xyz", inputs, strict=False)}
    with pytest.raises(AxisError, match="n <= 8: at other sizes the program does something else"):
        to_onnx(Larger(name).eval(), inputs, dynamic_shapes=shapes)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8], ids=str)
def test_numbers_at_the_ends_of_a_dtype_are_drawn_as_well(dtype: torch.dtype) -> None:
    ends = torch.iinfo(dtype)
    call = CallInputs((torch.tensor([ends.min, ends.max], dtype=dtype), torch.ones(2, dtype=torch.float16)))
    for other in with_data_at_ends(call, [5, 70_000]):
        assert [leaf.dtype for leaf in other.leaves()] == [dtype, torch.float16]
