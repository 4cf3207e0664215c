"""Comprehensions within the elements of others, over sizes that may change, with decisions on data in them."""

from __future__ import annotations

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

FORMS = {
    "stacked": "torch.stack([torch.stack([f(c) for c in im]) for im in x])",
    "sums": "torch.stack([sum([f(c) for c in im]) for im in x])",
    "the largest": "torch.stack([max([f(c).sum() for c in im]) for im in x])",
    "a range": "torch.stack([torch.stack([f(im[i]) * i for i in range(3)]) for im in x])",
    "numbered": "torch.stack([torch.stack([f(c) * k + i for i, c in enumerate(im)]) for k, im in enumerate(x)])",
    "over the axis within": "torch.stack([torch.stack([f(im[j]) for im in x]) for j in range(3)])",
    "over the axis twice": "torch.stack([torch.stack([f(a - b) for b in x]) for a in x])",
    "joined lists": "torch.stack([torch.stack([c for c in im] + [f(c) for k, c in enumerate(im) if k]) for im in x])",
    "a dict": "torch.stack([torch.cat([*{k: f(c) for k, c in enumerate(im)}.values()]) for im in x])",
    "three": "torch.stack([torch.stack([torch.stack([f(e.reshape(1)) for e in c]) for c in im]) for im in x])",
    "a list of lists": "torch.stack([torch.stack(row) for row in [[f(c) for c in im] for im in x]])",
    "what is around": "torch.stack([torch.stack([f(c) + im.sum() for c in im]) for im in x])",
    "flat": "torch.stack([f(c) for im in x for c in im])",
    "an expression": "torch.stack([torch.stack([c * 2 if c.sum() > 0 else -c for c in im]) for im in x])",
    "the same name": "torch.stack([torch.stack([f(x) for x in x]) for x in x])",
}
_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        def f(c):
            if c.sum() > 0:
                return c * 2
            return c - 1

        return {form}
"""


@pytest.mark.parametrize("name", FORMS)
def test_comprehensions_in_comprehensions(name: str) -> None:
    model = model_of(_PROGRAM.format(form=FORMS[name]), f"/nested/{name}.py").eval()
    onnx = to_onnx(model, (torch.randn(2, 3, 4),), dynamic_shapes=({0: "b"},), rewrite="auto")
    for count in (1, 2, 5):
        x = torch.randn(count, 3, 4)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
