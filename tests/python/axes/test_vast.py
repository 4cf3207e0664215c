"""A bound that only tensors of more than 2^30 entries reach is told and is no error; a smaller one is, unless the model
refuses what lies beyond it: that is found out without making inputs as large as that."""

from __future__ import annotations

import pytest
import torch

from exportguard import AxisError, to_onnx, validate_module

SHAPES = ({0: "batch", 1: "rows", 2: "columns"},)


class CountsIn32Bits(torch.nn.Module):
    """As a model does before a kernel that counts in 32 bits."""

    def __init__(self, largest: int, power: int = 1) -> None:
        super().__init__()
        self.largest, self.power = largest, power

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x * 2).numel() ** self.power * 4 > self.largest:
            x = x * 3
        return x + 1


def test_a_bound_that_only_vast_tensors_reach_is_told() -> None:
    report = validate_module(CountsIn32Bits(2**32).eval(), (torch.randn(2, 3, 4),), SHAPES)
    assert report.ok, report.failure
    told = {bound["kind"] for axis in report.as_dict()["axes"] for bound in axis["bounds"]}
    assert any("2^30 entries" in kind for kind in told)


@pytest.mark.parametrize(("largest", "power"), [(2**31, 1), (2**40, 2)])
def test_a_bound_that_smaller_tensors_reach_is_an_error(largest: int, power: int) -> None:
    with pytest.raises(AxisError, match="largest"):
        to_onnx(CountsIn32Bits(largest, power).eval(), (torch.randn(2, 3, 4),), dynamic_shapes=SHAPES)


SIDES = ({0: "batch", 2: "height", 3: "width"},)


class PoolsAll(torch.nn.Module):
    """A window that is far wider than any picture, as EfficientNet's: all of it is one place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.pool = torch.nn.AvgPool2d(2**20, ceil_mode=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.pool(self.conv(x))
        return pooled.reshape(pooled.shape[:2])


class TakesTwoPlaces(PoolsAll):
    """The same, but a second place is no error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.pool(self.conv(x))
        return pooled.sum((2, 3)) if pooled.shape[2] == 1 else pooled.amax((2, 3))


def test_sizes_that_the_model_refuses_are_its_own_bound_though_no_inputs_are_as_large() -> None:
    model = PoolsAll().eval()
    onnx_model = to_onnx(model, (torch.randn(2, 3, 8, 9),), dynamic_shapes=SIDES)
    height = onnx_model.axes[1]
    assert height.kept
    assert "the model refuses other sizes" in str(height)
    x = torch.randn(1, 3, 20, 5)
    torch.testing.assert_close(onnx_model.run({"x": x})[onnx_model.outputs[0].name], model(x), rtol=1e-4, atol=1e-5)


def test_sizes_that_the_model_takes_are_not() -> None:
    with pytest.raises(AxisError, match="other sizes could not be tried"):
        to_onnx(TakesTwoPlaces().eval(), (torch.randn(2, 3, 8, 9),), dynamic_shapes=SIDES)
