"""`interpolate` by factors that are made of sizes, as positions of patches are fitted to a picture."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate

from exportguard import to_onnx

MODES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "nearest": 2}
SIDE = 5


class Fits(torch.nn.Module):
    """A table of 5 places along each axis, for as many patches of 4 as the input has."""

    def __init__(self, mode: str, moved: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.mode, self.moved = mode, moved
        self.register_buffer("table", torch.randn(1, 2, *[SIDE] * MODES[mode], dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table: Any = self.table
        factors = [(size // 4 + self.moved) / math.sqrt(SIDE**2) for size in x.shape[2:]]
        return interpolate(table, scale_factor=tuple(factors), mode=self.mode)


#: Patches along each axis: fewer, as many, twice as many and others.
PATCHES = (1, 3, 5, 7, 10, 28)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("moved", [0, 0.1])
@pytest.mark.parametrize("mode", MODES)
def test_a_table_is_fitted_to_every_size(mode: str, moved: float, dtype: torch.dtype) -> None:
    model, rank = Fits(mode, moved, dtype).eval(), MODES[mode]
    shapes = ({0: "batch", **{axis + 2: f"side{axis}" for axis in range(rank)}},)
    sides = [24, 32, 12][:rank]
    onnx = to_onnx(model, (torch.zeros(2, 1, *sides, dtype=dtype),), dynamic_shapes=shapes)
    assert all(axis.kept for axis in onnx.axes)
    for counts in [*itertools.islice(itertools.product(PATCHES, repeat=rank), 0, None, 5 ** (rank - 1)), [5] * rank]:
        x = torch.zeros(1, 1, *(4 * count + count % 3 for count in counts), dtype=dtype)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x), rtol=1e-4, atol=1e-5)
