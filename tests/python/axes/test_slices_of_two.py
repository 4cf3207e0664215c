"""`x[:2]` of a single row: torch says, without a guard, that it has two rows, and a file may have that in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx
from exportguard.errors import AxisError

#: Expressions of `x[:2]`, of two rows.
FORMS: Mapping[str, str] = {
    "ones alike": "torch.ones_like(x[:2])",
    "numbers alike": "torch.full_like(x[-2:], 0.5)",
    "zeros of a shape": "x.new_zeros(x[:2].shape) + 1",
    "as many": "x[:2].mean(0, keepdim=True).expand_as(x[:2])",
    "flattened": "x[:2].flatten().unsqueeze(1).expand(-1, 3)",
    "repeated": "x[:2].repeat(2, 1)",
    "joined": "torch.cat([x[:2], x[:2]])",
    "added up": "x[:2].cumsum(0)",
    "broadcast": "x[:2] + x[:1]",
    "plain": "x[:2]",
    "times": "x[:2] * 2",
}
#: Programs that return something without those rows.
CONTEXTS: Mapping[str, str] = {
    "straight": "return ({}).sum(0)",
    "branch": "z = {} if x.sum() > 0 else x\n        return z.sum(0)",
    "fallback": "m = x[:, 0] > 0\n        z = x[m] if m.any() else {}\n        return z.sum(0)",
    "exchanged": "a, b = {}, x[1:]\n        if x.sum() > 0:\n            a, b = b, a\n        return a.sum(0)",
    "counted": "z = {} if x.sum() > 0 else x[1:]\n        return x.sum(0) * z.shape[0]",
    "loop": "z = x\n        while z.sum() > 4:\n            z = (({}) * 0.1).clamp(max=0.1)\n        return z.sum(0)",
}
_TEXT = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {}
"""


def require_right(program: torch.nn.Module, rewrite: Any) -> None:
    torch.manual_seed(0)
    try:
        model = to_onnx(program, (torch.randn(5, 3),), dynamic_shapes=({0: "n"},), rewrite=rewrite)
    except AxisError:  # it is told that an axis is lost
        return
    for rows in (1, 2, 3, 5):
        for x in (torch.rand(rows, 3), -torch.rand(rows, 3), 9 * torch.rand(rows, 3)):
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(torch.as_tensor(got), program(x), msg=lambda told, x=x: f"{told} of {x}")


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.thinned(4)
def test_a_single_row_is_as_in_eager_mode(form: str, context: str) -> None:
    require_right(model_of(_TEXT.format(CONTEXTS[context].format(FORMS[form])), "/slices of two.py"), "auto")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.thinned(2)
def test_so_it_is_without_rewriting(form: str) -> None:
    require_right(model_of(_TEXT.format(CONTEXTS["straight"].format(FORMS[form])), "/slices of two.py"), ())
