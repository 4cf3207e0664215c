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


class EndsAtAnother(torch.nn.Module):
    """On two ways there are `n - m` rows, which is negative at the sizes of the example, of which neither way is."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, m = x.shape[0], y.shape[0]
        return x[-m:], x[m:n], x[n // 2 : m]


def test_slices_that_end_at_another_size_are_right_on_every_way() -> None:
    model = EndsAtAnother().eval()
    example = (torch.randn(7, 4), torch.randn(8, 4))
    onnx = to_onnx(model, example, dynamic_shapes=({0: "n"}, {0: "m"}), rewrite="auto")
    assert all(axis.kept for axis in onnx.axes)
    for n, m in [(1, 1), (1, 9), (2, 1), (7, 8), (8, 7), (9, 3), (16, 5), (16, 17)]:
        given = {"x": torch.randn(n, 4), "y": torch.randn(m, 4)}
        for got, expected in zip(onnx.run(given).values(), model(**given), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), expected)
