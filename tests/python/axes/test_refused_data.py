"""A model that refuses the data of a trial may take the sizes: it is tried with other data before that is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import AxisError, to_onnx


def refuses_sums_above(bound: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= 3:
            return x * 2
        if x.sum() > bound:
            raise ValueError("too much")
        return x * 3

    return function


def refuses_long_ones(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        raise ValueError("too many")
    return x * 2


@pytest.mark.parametrize("bound", [0.0, -50.0])
def test_sizes_are_taken_if_some_data_is(bound: float) -> None:
    model = Called(refuses_sums_above(bound)).eval()
    with pytest.raises(AxisError, match=r"rows <= 3.*something else than the model"):
        to_onnx(model, (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))


def test_sizes_are_refused_if_all_data_is() -> None:
    onnx = to_onnx(Called(refuses_long_ones).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))
    assert onnx.axes[0].at_most == 3


class LastRow(torch.nn.Module):
    """Has no row to return of none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in x:  # noqa: B007 - the last one is what it returns
            pass
        return row * x.sum(0)


class Stops(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 0:
            raise StopIteration
        return x.sum(0) * 2


@pytest.mark.parametrize("cls", [LastRow, Stops])
def test_what_a_model_does_without_anything_to_go_through_is_its_refusal(cls: type[torch.nn.Module]) -> None:
    onnx = to_onnx(cls().eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 6):
        x = torch.rand(rows, 4)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, cls()(x))
