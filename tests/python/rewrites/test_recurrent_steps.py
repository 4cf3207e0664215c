"""Recurrent layers of torch, called in each step of a loop over tensors, as decoders with attention do."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

LAYERS = {
    "RNN": "_, h = self.layer({step}, h)",
    "GRU": "_, h = self.layer({step}, h)",
    "LSTM": "_, (h, c) = self.layer({step}, (h, c))",
}
LOOPS = {
    "slices": ("for t in range(x.shape[0]):", "x[t:t+1]"),
    "rows": ("for row in x:", "row.unsqueeze(0)"),
    "backwards": ("for t in range(x.shape[0] - 1, -1, -1):", "x[t].unsqueeze(0)"),
}

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.{layer}(4, 4)
        self.attention = torch.nn.Linear(4, 4)

    def forward(self, x):
        h = c = torch.zeros(1, x.shape[1], 4)
        outputs = []
        {loop}
            {step}
            outputs.append(self.attention(h) + c)
        return torch.cat(outputs), h
"""


@pytest.mark.parametrize(("layer", "loop"), [*itertools.product(LAYERS, LOOPS)])
def test_a_layer_that_is_called_in_each_step(layer: str, loop: str) -> None:
    head, step = LOOPS[loop]
    source = _PROGRAM.format(layer=layer, loop=head, step=LAYERS[layer].format(step=step))
    model = model_of(source, f"/recurrent/{layer} {loop}.py").eval()
    onnx = to_onnx(model, (torch.randn(5, 2, 4),), dynamic_shapes=({0: "steps", 1: "batch"},), rewrite="auto")
    for sizes in ((5, 2), (1, 1), (9, 3)):
        x = torch.randn(*sizes, 4)
        for got, expected in zip(onnx.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


_DECODER = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.{layer}(4, 4)
        self.scores = torch.nn.Linear(4, 3)

    def forward(self, x, count):
        h = c = torch.zeros(1, x.shape[1], 4)
        for t in range(int(count)):
            added = 0
            while added < 3:
                before = (h, c)
                {step}
                added += 1
                if self.scores(h).sum() < 0:
                    h, c = before
                    break
        return h, c
"""


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_is_called_in_a_loop_within_a_loop(layer: str) -> None:
    """As decoders of transducers do: several symbols for each frame."""
    source = _DECODER.format(layer=layer, step=LAYERS[layer].format(step="x[t].unsqueeze(0)"))
    model = model_of(source, f"/recurrent/nested {layer}.py").eval()
    axes = ({0: "steps", 1: "batch"}, None)
    onnx = to_onnx(model, (torch.randn(5, 2, 4), torch.tensor(3)), dynamic_shapes=axes, rewrite="auto")
    for steps, batch, count in ((5, 2, 5), (1, 1, 1), (9, 3, 4), (4, 1, 0)):
        inputs = torch.randn(steps, batch, 4), torch.tensor(count)
        for got, expected in zip(
            onnx.run(dict(zip(("x", "count"), inputs, strict=True))).values(), model(*inputs), strict=True
        ):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
