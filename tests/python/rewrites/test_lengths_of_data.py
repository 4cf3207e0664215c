"""`len` of rows that tensor data count, wherever Python has it."""

from __future__ import annotations

import textwrap

import pytest
import torch
from control_flow_program import up
from random_programs import model_of

from exportguard import to_onnx

#: Rows that data count, and what else counts them.
ROWS = {
    "of a mask": "x[x[:, 0] > 0]",
    "of indices": "x[(x[:, 0] > 0).nonzero().flatten()]",
    "distinct": "torch.unique(x.long(), dim=0).float()",
}

#: Statements that make `y` of `k`, the rows.
STATEMENTS = {
    "a test": "y = k.sum(0)\nif len(k) > 2:\n    y = k[:2].sum(0)",
    "two ways": "if len(k) > 2:\n    y = k[:2].sum(0)\nelse:\n    y = k.sum(0) * 2",
    "a test of nothing": "y = k.sum(0)\nif len(k) == 0:\n    y = x.mean(0)",
    "truth": "y = x.mean(0)\nif len(k):\n    y = k[0] + k[-1]",
    "no truth": "y = k.sum(0)\nif not len(k):\n    y = x.mean(0)",
    "a name": "n = len(k)\nif n > 2:\n    n = n - 1\ny = k.sum(0) / max(n, 1)",
    "rows chosen among them": "if len(k) > 2:\n    k = k[torch.topk(k[:, 0], 2).indices]\ny = k.sum(0)",
    "a return": "if len(k) == 0:\n    return x.sum(0)\ny = k.sum(0)",
    "a loop": "y = torch.zeros(4)\nfor i in range(len(k)):\n    y = y + k[i] * i",
    "a while": "y, i = torch.zeros(4), 0\nwhile i < len(k):\n    y = y + k[i] * i\n    i += 2",
    "an or": "y = k.sum(0) / (len(k) or 1)",
    "a chain": "y = k.sum(0) if 1 < len(k) <= 3 else x.sum(0)",
    "beside another size": "y = k.sum(0) * (len(k) / len(x)) + len(k.shape)",
    "sizes": "y = (torch.zeros(len(k), 4) + k + torch.arange(len(k))[:, None]).view(len(k) * 4).sum()",
    "a half": "y = k[: len(k) // 2].sum(0)",
    "padding": "y = torch.nn.functional.pad(k, (0, 0, 0, len(x) - len(k))) + x",
    "a list": "y = torch.tensor([1.0] * len(k))[:, None] + k",
    "backwards": "y = k[torch.arange(len(k) - 1, -1, -1)]",
    "a tensor": "y = torch.tensor(len(k)) + k.sum(0)",
    "in a helper": "y = k.sum(0) / self.count(k)",
}

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def count(self, rows):
        return len(rows) + 1

    def forward(self, x):
        k = {rows}
{statements}
        return y
"""


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("rows", ROWS)
def test_the_length_is_that_of_eager_mode(rows: str, statement: str) -> None:
    source = _PROGRAM.format(rows=ROWS[rows], statements=textwrap.indent(STATEMENTS[statement], " " * 8))
    model = model_of(source, f"/lengths/{rows} {statement}.py").eval()
    onnx = to_onnx(model, (up(5),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for count, scale in ((5, 1.0), (3, -1.0), (8, 1.0), (1, 1.0), (2, 0.5)):
        x = up(count, scale)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x), equal_nan=True)
