"""Slices that are stored into, between bounds that are numbers of tensor data, at every number that they can be."""

from __future__ import annotations

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        k = (x[:, 0] > 0).sum()
        j = (x[0] > 0).sum()
        y = x.clone()
        {line}
        return y
"""
LINES = (
    "y[:k] = 0",
    "y[k:] = 1",
    "y[-k:] = 7",
    "y[:-k] = 7",
    "y[: k + 1] = 3",
    "y[k : k + 2] = 4",
    "y[k // 2 :] = 0",
    "y[:, :j] = 5",
    "y[k:, :j] = -1",
    "y[:k, 0] = 9",
    "y[k:] += 1",
    "y[:k] *= y.mean()",
    "y[:k, j:] -= 2",
    "y[:k] = y[:k] * 2",
    "y[:k] = y[:k].flip(1)",
    "y[:j] = x[:j] + 1",
    "z = torch.zeros(x.shape[0]); z[:k] = 1; y = y * z[:, None]",
)


def answered(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """None where eager refuses."""
    try:
        result: torch.Tensor = model(x)
    except RuntimeError:
        return None
    return result


@pytest.mark.thinned(2)
@pytest.mark.parametrize("line", LINES)
def test_a_slice_between_numbers_of_data_is_written(line: str) -> None:
    model = model_of(_PROGRAM.format(line=line), f"/stores/{line}.py")
    file = to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    compared = 0
    for rows in (1, 2, 3, 6):
        for positive in range(rows + 1):
            x = torch.rand(rows, 3) - 0.5
            x[:, 0] = torch.where(torch.randperm(rows) < positive, 1.0, -1.0)
            expected = answered(model, x)
            if expected is not None:
                torch.testing.assert_close(file.run({file.inputs[0].name: x})[file.outputs[0].name], expected)
                compared += 1
    assert compared > 9
