"""Integers beyond their type: tensors wrap them, and nothing that looks for sizes among constants stops at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from exportguard import to_onnx

_LOWEST, _LARGEST = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max

#: What is computed of a buffer that holds two of the largest and least numbers, and of an input.
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "generator": lambda x, held: x ^ (held * 6364136223846793005 + 1442695040888963407),
    "sum": lambda x, held: x + (held + held),
    "difference": lambda x, held: x - (-2 - held),
    "product": lambda x, held: x * (held * held),
    "negated": lambda x, held: torch.maximum(x, -held),
    "all": lambda x, held: x * held.prod(),
    "joined": lambda x, held: torch.cat([x, held * 2 + torch.tensor([1, _LARGEST])]),
    "stacked": lambda x, held: torch.stack([x, held[:1] - 1 + x]),
    "absolute": lambda x, held: x.minimum(held.abs()),
}


class Holds(torch.nn.Module):
    def __init__(self, form: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.form = form
        ends = torch.iinfo(dtype)
        self.register_buffer("held", torch.tensor([ends.min, ends.max - 3], dtype=dtype))

    def forward(self, x: Tensor) -> Any:
        return FORMS[self.form](x, self.get_buffer("held"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("optimize", [True, False])
def test_they_are_as_in_eager_mode(form: str, dtype: torch.dtype, optimize: Literal[True, False]) -> None:
    model = Holds(form, dtype).eval()
    given = torch.tensor([5, -7], dtype=dtype)
    expected = model(given)
    (got,) = to_onnx(model, (given,), optimize=optimize).run({"x": given}).values()
    assert torch.as_tensor(got).dtype == expected.dtype
    assert torch.as_tensor(got).tolist() == expected.tolist()
