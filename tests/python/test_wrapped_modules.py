"""Modules that `torch.compile` or `DataParallel` wrapped are exported as what these were made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from exportguard import to_onnx, validate_module

WRAPPERS: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "compiled": lambda module: torch.compile(module, backend="eager"),
    "for several devices": torch.nn.DataParallel,
    "both": lambda module: torch.compile(torch.nn.DataParallel(module), backend="eager"),
}


class Scales(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * factor


@pytest.mark.parametrize("name", WRAPPERS)
def test_arguments_have_their_names_and_weights_theirs(name: str) -> None:
    module = Scales().eval()
    wrapped = WRAPPERS[name](module)
    inputs = {"x": torch.randn(2, 4), "factor": torch.rand(())}
    model = to_onnx(wrapped, kwargs=inputs, dynamic_shapes={"x": {0: "rows"}, "factor": None})
    assert [value.name for value in model.inputs] == ["x", "factor"]
    x = torch.randn(5, 4)
    (got,) = model.run({**inputs, "x": x}).values()
    torch.testing.assert_close(got, module(x, inputs["factor"]))
    assert validate_module(wrapped, (inputs["x"], inputs["factor"]), {"x": {0: "rows"}, "factor": None}).ok
