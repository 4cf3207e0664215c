"""LSTM layers whose hidden states are projected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import floats

from exportguard import to_onnx

OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers without biases": {"num_layers": 2, "bias": False},
    "both directions": {"num_layers": 2, "bidirectional": True},
}


class Projected(torch.nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = torch.nn.LSTM(4, 6, proj_size=3, batch_first=True, **options)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        return self.lstm(x), self.lstm(x, (h, c))


@pytest.mark.parametrize("name", OPTIONS)
def test_from_zeros_and_from_states(name: str) -> None:
    model = Projected(OPTIONS[name]).eval()
    count = model.lstm.num_layers * (2 if model.lstm.bidirectional else 1)
    shapes = ({0: "batch", 1: "steps"}, {1: "batch"}, {1: "batch"})
    feeds = [
        (floats(batch, steps, 4), floats(count, batch, 3), floats(count, batch, 6))
        for batch, steps in [(2, 5), (3, 1), (1, 8)]
    ]
    found = to_onnx(model, feeds[0], dynamic_shapes=shapes)
    for feed in feeds:
        expected = torch.utils._pytree.tree_leaves(model(*feed))
        got = found.run(dict(zip("xhc", feed, strict=True)), runner="onnxruntime").values()
        for want, one in zip(expected, got, strict=True):
            torch.testing.assert_close(torch.as_tensor(one), want, rtol=1e-5, atol=1e-6)
