"""Functions that return early, and return how many rows data chose: as a tensor, in a tuple, or in arithmetic."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

COUNTS = {
    "a tensor": "torch.tensor({rows}.shape[0])",
    "a length": "torch.as_tensor(len({rows}))",
    "in a list": "torch.tensor([{rows}.shape[0], 3])",
    "all entries": "torch.tensor({rows}.numel()) * 2",
    "of a dtype": "torch.tensor({rows}.size(0), dtype=torch.float32)",
}
RETURNS = {
    "one": """
        y = x[x.sum(1) > 0]
        if y.shape[0] > 3:
            return {three}
        return {count}
""",
    "two": """
        mask = x.sum(1) > 0
        if not mask.any():
            return {none}
        y = x[mask]
        if y.shape[0] > 3:
            return {three}
        return {count}
""",
    "three": """
        mask = x.sum(1) > 0
        if not mask.any():
            return {none}
        y = x[mask]
        if y.shape[0] > 3:
            return {three}
        y = y[y[:, 0] > 0]
        if len(y) == 0:
            return {none}
        return {count}
""",
}
_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):{body}
"""


@pytest.mark.parametrize(("count", "returns"), [*itertools.product(COUNTS, RETURNS)])
def test_they_are_counted_in_every_return(count: str, returns: str) -> None:
    forms = {"none": "x[:0]", "three": "y[:3]", "count": "y"}
    body = RETURNS[returns].format(**{name: COUNTS[count].format(rows=rows) for name, rows in forms.items()})
    model = model_of(_PROGRAM.format(body=body), f"/counts/{count} {returns}.py").eval()
    onnx = to_onnx(model, (torch.rand(5, 3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for rows, shift in itertools.product((1, 2, 5, 9), (-2, 0, 2)):
        x = torch.randn(rows, 3) + shift
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
