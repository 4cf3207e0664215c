"""A bound that only tensors of more than 2^30 entries reach is told and is no error; a smaller one is."""

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
