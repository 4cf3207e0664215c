"""`torch.linalg.lstsq` of matrices of any size, of lower rank among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from called import CalledWithAll
from exportguard import to_onnx
from exportguard.errors import ExportError

Function = Callable[[torch.Tensor, torch.Tensor], object]

FUNCTIONS: list[Function] = [
    lambda a, b: torch.linalg.lstsq(a, b).solution,
    lambda a, b: torch.linalg.lstsq(a, b)[0],
    lambda a, b: torch.linalg.lstsq(a, b[:, 0]).solution,
    lambda a, b: torch.linalg.lstsq(a.unsqueeze(0), b.unsqueeze(0), rcond=1e-3).solution,
    lambda a, b: torch.linalg.lstsq(torch.cat([a, a], 1), b, driver="gelsd").solution,
]


def solves_systems_of_any_size() -> None:
    axes = ({0: "rows", 1: "unknowns"}, {0: "rows", 1: "systems"})
    torch.manual_seed(0)
    for function in FUNCTIONS:
        model = to_onnx(CalledWithAll(function).eval(), (torch.randn(6, 3), torch.randn(6, 2)), dynamic_shapes=(axes,))
        for rows, unknowns, systems in [(6, 3, 2), (9, 2, 1), (3, 5, 4), (4, 4, 2)]:
            a, b = torch.randn(rows, unknowns), torch.randn(rows, systems)
            (got,) = model.run({value.name: x for value, x in zip(model.inputs, (a, b), strict=True)}).values()
            torch.testing.assert_close(torch.as_tensor(got), function(a, b), rtol=1e-3, atol=1e-3)
    with pytest.raises(ExportError, match=r"read `\.solution` alone"):
        to_onnx(
            CalledWithAll(lambda a, b: torch.linalg.lstsq(a, b).residuals).eval(),
            (torch.randn(6, 3), torch.randn(6, 2)),
        )


PROGRAMS = {"least squares": solves_systems_of_any_size}
