"""What Python is told of a parameter or a buffer is known while the model is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exportguard import ExportOptions, to_onnx


class Scaled(nn.Module):
    def __init__(self, told: Callable[[Scaled], Any], index: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4))
        self.plain, self.told, self.index = torch.ones(4), told, index

    def forward(self, x: Tensor) -> Tensor:
        tensor = self.told(self)
        return self.linear(x) * getattr(tensor, "scale", 1.0) + getattr(tensor, "shift", 0.0) + self.offset


HOLDERS: dict[str, Callable[[Scaled], Any]] = {
    "parameter": lambda module: module.linear.weight,
    "buffer": lambda module: module.offset,
    "tensor": lambda module: module.plain,
}


@pytest.mark.parametrize("repeats", ["trace once", "trace all"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_numbers_and_tensors_of_a_tensor_are_those_of_eager(holder: str, repeats: Any) -> None:
    layers = [Scaled(HOLDERS[holder], index) for index in range(5)]
    for layer in layers[1:]:
        HOLDERS[holder](layer).scale = 1.0 + layer.index % 3
    HOLDERS[holder](layers[3]).shift = torch.arange(4.0)
    model = nn.Sequential(*layers).eval()
    converted = to_onnx(
        model, (torch.ones(2, 4),), dynamic_shapes=({0: "batch"},), options=ExportOptions(repeats=repeats)
    )
    x = torch.rand(5, 4)
    (got,) = converted.run({converted.inputs[0].name: x}).values()
    torch.testing.assert_close(got, model(x).detach())
    assert HOLDERS[holder](layers[1]).scale == 2.0
