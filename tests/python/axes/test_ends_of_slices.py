"""Slices of sizes at which they begin or end elsewhere than in the example are right, whatever the example is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import to_onnx

OF_ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the first": lambda x: x[:, :3],
    "the first, changed": lambda x: x[:, :3] * 2,
    "the last": lambda x: x[:, -3:],
    "without the last": lambda x: x[:, :-3],
    "from the middle": lambda x: x[:, 1:4].sum(1),
    "every other": lambda x: x[:, :4:2].cos(),
}
OF_ALL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "windows": lambda x: x.reshape(-1)[:3].unfold(0, 1, 1).sum(1),
    "the last of all": lambda x: x.reshape(-1)[-5:].cumsum(0),
    "of two": lambda x: x.flatten(1)[:, :5].amax(0),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("columns", [2, 3, 4, 6])
@pytest.mark.parametrize("name", OF_ROWS)
def test_an_example_may_be_shorter_than_the_slice(name: str, columns: int) -> None:
    model = to_onnx(Called(OF_ROWS[name]).eval(), (torch.rand(2, columns),), dynamic_shapes=({0: "a", 1: "b"},))
    for shape in itertools.product((1, 2, 3), (1, 2, 3, 4, 5, 9)):
        x = torch.rand(shape)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(torch.as_tensor(got), OF_ROWS[name](x), msg=str(shape))


@pytest.mark.parametrize("name", OF_ALL)
def test_a_product_of_sizes_may_be_shorter_than_the_slice(name: str) -> None:
    """torch proves of sizes from 2 up that it is not, and asks nothing."""
    axes = ({0: "a", 1: "b", 2: "c"},)
    model = to_onnx(Called(OF_ALL[name]).eval(), (torch.rand(2, 3, 4),), dynamic_shapes=axes)
    for shape in itertools.product((1, 2, 3), repeat=3):
        x = torch.rand(shape)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(torch.as_tensor(got), OF_ALL[name](x), msg=str(shape))
