"""Sizes that are products of several, of which torch makes nodes."""

from __future__ import annotations

import torch

from called import Called
from exportguard import to_onnx


def _is_a_size_of_three_factors() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.zeros(int(1.25 * (x.shape[0] * x.shape[1]) / 4))

    model = to_onnx(
        Called(count).eval(), (torch.ones(3, 8),), dynamic_shapes=({0: "rows", 1: "columns"},), rewrite="auto"
    )
    for sizes in [(3, 8), (1, 1), (7, 9)]:
        x = torch.ones(sizes)
        torch.testing.assert_close(next(iter(model.run({"x": x}).values())), count(x))


PROGRAMS = {"products of several sizes": _is_a_size_of_three_factors}
