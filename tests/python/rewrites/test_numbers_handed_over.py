"""A number made of a size in one function, and gone through in another one that it is handed to."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx

NUMBERS = {
    "a half": "int(x.shape[0] * 0.5)",
    "a part": "int(x.shape[0] * 0.3)",
    "a quotient": "x.shape[0] // 3",
    "a rounded one": "round(x.shape[0] * 0.5)",
    "at least one": "max(1, int(x.shape[0] / 4))",
    "a root": "int(math.sqrt(x.shape[0]))",
    "its length": "len(x)",
}
HANDED = {
    "an argument": "return self.taken(x, {number})",
    "a variable": "count = {number}\n        return self.taken(x, count)",
    "a keyword": "return self.taken(x, count={number})",
    "a function": "return taken(x, {number})",
    "a module": "return self.other(x, {number})",
    "two": "return self.through(x, {number})",
    "in a tuple": "sizes = (x.shape[0], {number})\n        return self.of_sizes(x, sizes)",
}
USES = {
    "steps": "total = torch.zeros(3)\n    for i in range(count):\n        total = total * 0.5 + x[i]\n    return total",
    "a list": "rows = [x[i] * i for i in range(count)] + [x[-1]]\n    return torch.stack(rows).cumsum(0)",
    "a tensor": "rows = torch.zeros(count)\n    for i in range(count):\n        rows[i] = x[i, 0]\n    return rows * 2",
    "a slice": "total = x[0]\n    for row in x[:count]:\n        total = torch.maximum(total, row)\n    return total",
}
_PROGRAM = """
import math
import torch

def taken(x, count):
    {use}

class Other(torch.nn.Module):
    def forward(self, x, count):
        return taken(x, count)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.other = Other()

    def taken(self, x, count):
        {method}

    def through(self, x, count):
        return self.other(x, count) + 1

    def of_sizes(self, x, sizes):
        _, count = sizes
        return taken(x, count)

    def forward(self, x):
        {handed}
"""
CASES = [*itertools.product(NUMBERS, HANDED, USES)]


def is_right_at_all_sizes(number: str, handed: str, use: str) -> None:
    source = _PROGRAM.format(
        use=USES[use],
        method=USES[use].replace("\n", "\n    "),
        handed=HANDED[handed].format(number=NUMBERS[number]),
    )
    model = model_of(source, f"/handed/{number} {handed} {use}.py").eval()
    onnx = to_onnx(model, (torch.randn(12, 3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for rows in (1, 2, 3, 4, 7, 12, 13, 31):
        x = torch.randn(rows, 3)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


@pytest.mark.parametrize(("number", "handed"), [("a half", "a variable"), ("a half", "an argument"), ("a part", "two")])
def test_a_part_of_a_size_is_gone_through_elsewhere(number: str, handed: str) -> None:
    is_right_at_all_sizes(number, handed, "steps")


@pytest.mark.thinned(16)
@pytest.mark.parametrize(("number", "handed", "use"), CASES)
def test_numbers_of_sizes_are_gone_through_elsewhere(number: str, handed: str, use: str) -> None:
    is_right_at_all_sizes(number, handed, use)
