"""Positions that a range counts, downwards or from below 0, where onnxruntime makes a slice of a range of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from called import Called
from exportguard import ExportGuardError, to_onnx

Range = Callable[[torch.Tensor], torch.Tensor]
Use = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

RANGES: dict[str, Range] = {
    "down to the first": lambda x: torch.arange(x.shape[0] - 1, -1, -1),
    "every second one down": lambda x: torch.arange(x.shape[0] - 2, -3, -2),
    "from the half down": lambda x: torch.arange(x.shape[0] // 2, -1, -1),
    "from the end": lambda x: torch.arange(-x.shape[0], x.shape[0]),
    "around the end": lambda x: torch.arange(-2, 1),
    "down from the end": lambda x: torch.arange(-1, -x.shape[0] - 1, -1),
    "from three before the end": lambda x: torch.arange(x.shape[0] - 3, x.shape[0]),
    "up": lambda x: torch.arange(1, x.shape[0]),
    "from a number of data": lambda x: torch.arange((x[0, 0] < 0).long() - 1, 2),
    "of 32 bits": lambda x: torch.arange(x.shape[0] - 1, -1, -1, dtype=torch.int32),
    "of 32 bits as 64": lambda x: torch.arange(x.shape[0] - 1, -1, -1, dtype=torch.int32).long(),
}

USES: dict[str, Use] = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x.T[:, i],
    "selected": lambda x, i: x.index_select(0, i.remainder(x.shape[0])),
    "embedded": lambda x, i: functional.embedding(i.remainder(x.shape[0]), x),
    "taken": lambda x, i: x.flatten().take(i.long()),
    "at pairs": lambda x, i: x[i, 0],
    "a grid": lambda x, i: x[i[:, None], torch.arange(2, -1, -1)[None]],
    "written": lambda x, i: x.index_add(0, i.remainder(x.shape[0]), x[i]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("positions", RANGES.values(), ids=RANGES)
def test_a_range_gives_the_positions_of_the_model(positions: Range, use: Use) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return use(x, positions(x))

    onnx = to_onnx(Called(model).eval(), (torch.randn(6, 3),), dynamic_shapes=({0: "rows"},))
    for rows in (6, 3, 9, 2):
        x = torch.randn(rows, 3)
        try:
            expected = model(x)
        except IndexError:  # a position that x does not have
            continue
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


class Rows(torch.nn.Module):
    """The first rows of tables, as models with learned positions read them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 3)
        self.register_buffer("places", torch.randn(10, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0])
        return x + self.table(rows) + self.places[rows] + self.places.index_select(0, rows)


@pytest.mark.parametrize("optimize", [False, True, "onnxruntime"])
def test_more_rows_than_a_table_has_are_an_error(optimize: Any) -> None:
    model = Rows().eval()
    file = to_onnx(model, (torch.randn(6, 3),), dynamic_shapes=({0: "n"},), optimize=optimize)
    for rows in (1, 6, 10):
        x = torch.randn(rows, 3)
        (got,) = file.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
    with pytest.raises(ExportGuardError):
        file.run({"x": torch.randn(11, 3)})
