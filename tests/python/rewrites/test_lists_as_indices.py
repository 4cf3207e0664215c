"""Lists of as many numbers as a size says, as an index of a tensor: alone, beside others, read and written."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

LISTS = {
    "backwards": "at = [n - 1 - i for i in range(n)]",
    "reversed": "at = list(reversed(range(n)))",
    "the even ones": "at = [i for i in range(n) if i % 2 == 0]",
    "even and odd": "at = [i for i in range(n) if i % 2 == 0] + [i for i in range(n) if i % 2]",
    "appended": "at = []\n        for i in range(n):\n            at.append(i // 2)",
    "truth values": "at = [i % 3 == 0 for i in range(n)]",
    "from the end": "at = [-1 - i for i in range(n // 2 + 1)]",
    "of data": "at = x[:, 0].argsort().tolist()",
}
USES = {
    "read": "return x[at]",
    "read as a tensor": "return x[torch.tensor(at)]",
    "an element": "return x[at[0]], x[at]",
    "an axis in front": "return x[None, at]",
    "a slice behind": "return x[at, 1:]",
    "a number behind": "return x[at, 1]",
    "behind a slice": "return x.T[:, at]",
    "behind dots": "return x.T[..., at]",
    "read twice": "return x[at][:, [0, 2]]",
    "written": "y = x.clone()\n        y[at] = 5.0\n        return y",
    "written beside a number": "y = x.clone()\n        y[at, 1] = x[at, 0] * 2\n        return y",
    "added to": "y = x.clone()\n        y[at] += 1\n        return y",
    "added to beside a number": "y = x.clone()\n        y[at, 1] -= 3\n        return y",
    "in a branch": "return x[at] * 2 if x.sum() > 0 else x[at] - 1",
    "in a loop": "return torch.stack([row * 2 for row in x[at]])",
}
_PROGRAM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        {listed}
        {use}
"""


@pytest.mark.thinned(8)
@pytest.mark.parametrize(("listed", "use"), [*itertools.product(LISTS, USES)])
def test_a_list_is_an_index(listed: str, use: str) -> None:
    if listed == "truth values" and use == "an element":
        use = "read"  # a truth value chooses nothing or all
    model = model_of(_PROGRAM.format(listed=LISTS[listed], use=USES[use]), f"/listed/{listed} {use}.py").eval()
    onnx = to_onnx(model, (torch.randn(6, 4),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for rows, sign in itertools.product((1, 2, 3, 6, 9), (1, -1)):
        x = torch.rand(rows, 4) * sign
        expected = model(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, wanted in zip(onnx.run({"x": x}).values(), expected, strict=True):
            torch.testing.assert_close(got, wanted)
