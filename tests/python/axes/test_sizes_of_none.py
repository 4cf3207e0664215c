"""What a model asks of a size of 0, which torch takes for positive: the file is right there, or stops."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx
from verdicts import verdicts

QUESTIONS = (
    "n == 0",
    "n < 1",
    "not n > 0",
    "x.numel() == 0",
    "min(n, m) == 0",
    "0 in x.shape",
    "m == 0 or n == 0",
)
BODIES = {
    "two results": "        if {question}:\n            return x.sum() + 1\n        return x.sum()\n",
    "two ranks": "        if {question}:\n            return x.new_zeros(2)\n        return x.sum()\n",
    "the same": "        if {question}:\n            return x.sum() * 2\n        return x.sum()\n",
    "raised": "        if {question}:\n            raise ValueError(n)\n        return x * 2\n",
    "asserted": "        assert not ({question})\n        return x.sin()\n",
    "asked on the way": "        y = x * 2\n        y = y + 1 if {question} else y\n        return y.sum() + n\n",
}
_CLASS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n, m = x.shape
"""
SIZES = [*itertools.product((0, 1, 2, 5), repeat=2)]


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.thinned(2)
def test_a_file_is_right_of_none_or_stops(question: str, body: str, rewrite: Any) -> None:
    model = model_of(_CLASS + BODIES[body].format(question=question), "/sizes of none.py")
    file = to_onnx(model, (torch.randn(4, 3),), dynamic_shapes=({0: "n", 1: "m"},), rewrite=rewrite)
    found = verdicts(model, file, SIZES)
    assert not found["wrong"] + found["answers"]
    assert found["right"] >= 9  # where there are both rows and columns
    if body in ("raised", "asserted", "the same"):
        assert not found["stops"]


class Reshaped(torch.nn.Module):
    """Refused of none for what an operator asks, which the file's asks again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1)


def test_what_an_operator_asks_is_no_test() -> None:
    file = to_onnx(Reshaped().eval(), (torch.randn(4, 3, 2),), dynamic_shapes=({0: "n"},))
    assert [str(axis) for axis in file.axes] == ["x axis 0 (n): kept as n"]
