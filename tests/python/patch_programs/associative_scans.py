"""`associative_scan` over any number of elements, one among them, with functions of several tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from exportguard import to_onnx

Function = Callable[[torch.Tensor, torch.Tensor], object]
# The package has a function of the same name.
scan: Any = importlib.import_module("torch._higher_order_ops.associative_scan").associative_scan


def affine(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return a[0] * b[0], a[1] * b[0] + b[1]


FUNCTIONS: list[Function] = [
    lambda x, y: scan(lambda a, b: a + b, x, dim=0, combine_mode="generic"),
    lambda x, y: scan(torch.maximum, x, dim=1, reverse=True, combine_mode="generic"),
    lambda x, y: scan(affine, (torch.sigmoid(x), y), dim=1, combine_mode="generic"),
    lambda x, y: scan(lambda a, b: a @ b, torch.stack([x, y], -1).unsqueeze(-2) * x.new_ones(2, 1), dim=0,
                      combine_mode="generic"),
]  # fmt: skip


class Scanned(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
        return self.function(x, y)


def scans_any_number_of_elements() -> None:
    shapes = ({0: "rows", 1: "steps"},) * 2
    for function in FUNCTIONS:
        model = to_onnx(Scanned(function).eval(), (torch.rand(5, 4), torch.rand(5, 4)), dynamic_shapes=shapes)
        for size in [(5, 4), (1, 1), (2, 9), (8, 1)]:
            x, y = torch.rand(size), torch.rand(size)
            got = list(model.run({"x": x, "y": y}).values())
            expected = torch.utils._pytree.tree_leaves(function(x, y))
            torch.testing.assert_close([torch.as_tensor(a) for a in got], expected, rtol=1e-5, atol=1e-5)


PROGRAMS = {"associative scans of any length": scans_any_number_of_elements}
