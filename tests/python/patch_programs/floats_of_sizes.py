"""Numbers that Python makes of a size by one operation after the other."""

from __future__ import annotations

from typing import Any

import torch

from called import Called
from exportguard import to_onnx


def made_of_floats(x: torch.Tensor) -> tuple[Any, ...]:
    n = x.shape[0]
    return int(n * 0.15 * 20), n * 0.1 // 0.1, 1 // (n * 0.1), (n * 0.1) % 0.3, x.sum()


def as_python_rounds() -> None:
    model = Called(made_of_floats).eval()
    made = to_onnx(model, (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in range(1, 40):
        x = torch.randn(rows, 4)
        for got, want in zip(made.run({"x": x}).values(), model(x), strict=True):
            wanted = torch.as_tensor(want, dtype=torch.float64 if isinstance(want, float) else None)
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)


PROGRAMS = {"floats of sizes": as_python_rounds}
