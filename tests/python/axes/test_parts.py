"""Cuts into parts, of which an axis of size 1 has fewer than every longer one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import AxisError, to_onnx

Function = Callable[[torch.Tensor], torch.Tensor]


DIFFERENT: dict[str, Function] = {
    "the last of two": lambda x: x.chunk(2, 1)[-1],
    "how many": lambda x: x * len(x.chunk(2, dim=1)),
    "joined again": lambda x: torch.cat([part.sum(1, keepdim=True) for part in x.chunk(2, 1)], 1),
    "the last of three": lambda x: x.chunk(3, 1)[-1],
}
SAME: dict[str, Function] = {
    "the first of two": lambda x: x.chunk(2, 1)[0],
    "put together": lambda x: torch.cat(x.chunk(2, 1), 1),
    "of another axis": lambda x: x.chunk(2, 0)[-1],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_size_of_fewer_parts_is_refused(name: str) -> None:
    with pytest.raises(AxisError, match="n"):
        to_onnx(Called(DIFFERENT[name]).eval(), (torch.randn(4, 6),), dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_of_fewer_parts_is_right(name: str) -> None:
    model = to_onnx(Called(SAME[name]).eval(), (torch.randn(4, 6),), dynamic_shapes=({1: "n"},))
    for n in (1, 2, 3, 5, 8):
        x = torch.randn(4, n)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, SAME[name](x))
