"""Means of complex numbers along an axis of any length."""

from __future__ import annotations

import torch

from called import Called
from exportguard import to_onnx


def divides_by_every_length() -> None:
    module = Called(lambda x: torch.view_as_real(torch.view_as_complex(x).mean(0))).eval()
    model = to_onnx(module, (torch.randn(3, 4, 2),), dynamic_shapes=({0: "length"},))
    for length in (1, 3, 7):
        x = torch.randn(length, 4, 2)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, module(x))


PROGRAMS = {"sizes beside complex tensors": divides_by_every_length}
