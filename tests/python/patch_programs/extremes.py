"""`max` and `min` of an int and a float, which give one of them with its kind."""

from __future__ import annotations

import pytest
import torch

from called import Called
from exportguard import to_onnx
from exportguard.errors import ExportError


def smaller(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(3) * min(x.shape[0], 2.5)


def beside_floats(x: torch.Tensor) -> torch.Tensor:
    return x * min(x.shape[0], 2.5)


def extremes() -> None:
    """Where the kind decides a dtype the export stops; beside floats it does not matter."""
    shapes = ({0: "rows"},)
    with pytest.raises(ExportError, match=r"what min\(…\) or max\(…\) gives of an int and a float"):
        to_onnx(Called(smaller).eval(), (torch.randn(5, 2),), dynamic_shapes=shapes)
    model = to_onnx(Called(beside_floats).eval(), (torch.randn(5, 2),), dynamic_shapes=shapes)
    for rows in (5, 1, 2, 3):
        x = torch.randn(rows, 2)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, beside_floats(x))


PROGRAMS = {"the one of two that max and min give": extremes}
