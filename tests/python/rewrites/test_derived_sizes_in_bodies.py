"""Sizes that are made of others, as that of `x.reshape(-1, 3)`, used within loops and branches."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

#: What the rows `p` of a tensor (n, 7, 3) are.
ROWS = {
    "a product": "x.reshape(-1, 3)",
    "a sum": "torch.cat([x[:, 0], x[:, 1], x[0]])",
    "a quotient": "x.reshape(-1, 3)[::2]",
    "padded": "torch.nn.functional.pad(x[:, 0], (0, 0, 0, -x.shape[0] % 4))",
    "windows": "x.reshape(-1).unfold(0, 6, 3)[:, :3]",
}
BODIES = {
    "chunks": "torch.cat([self.net(p[i:i + 16]) for i in range(0, p.shape[0], 16)], 0)",
    "small chunks": "torch.cat([self.net(p[i:i + 3]) for i in range(0, p.shape[0], 3)], 0)",
    "pairs": "torch.stack([p[i] + p[-i - 1] for i in range(p.shape[0])])",
    "by the size": "sum((row / p.shape[0] for row in p), torch.zeros(3))",
    "a slice to the end": "sum((p[i:].sum(0) for i in range(p.shape[0])), torch.zeros(3))",
    "what is left": "torch.stack([row * (p.shape[0] - i) for i, row in enumerate(p)])",
    "in a branch": "p * p.shape[0] if p.sum() > 0 else p[: p.shape[0] // 2].sum(0) - p",
    "a tensor of it": "sum((torch.arange(p.shape[0]) * row[0] for row in x[:, 0]), torch.zeros(p.shape[0]))",
    "joined within": "sum((torch.cat([p, row[None]]).sum(0) for row in x[:, 0]), torch.zeros(3))",
    "windows": "torch.stack([p[i:i + 2].sum(0) for i in range(p.shape[0] - 1)] + [p[0]])",
}
_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 3)

    def forward(self, x):
        p = {rows}
        return {body}
"""


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("rows", "body"), [*itertools.product(ROWS, BODIES)])
def test_they_are_right_at_all_sizes(rows: str, body: str) -> None:
    model = model_of(_PROGRAM.format(rows=ROWS[rows], body=BODIES[body]), f"/derived/{rows} {body}.py").eval()
    onnx = to_onnx(model, (torch.randn(5, 7, 3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for count, sign in itertools.product((1, 2, 3, 5, 8, 16, 31), (1, -1)):
        x = torch.rand(count, 7, 3) * sign
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
