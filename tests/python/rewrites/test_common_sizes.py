"""Sizes that tensor data count stay one size through operators of elements, with rewriting as without."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from called import CalledWithTwo
from exportguard import to_onnx


def bags(table: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """As positions in packed pictures are looked up: `embedding_bag` asks whether places and weights are as many."""
    counts = grid[:, 0] * grid[:, 1]
    heights = torch.repeat_interleave(grid[:, 0], counts)
    widths = torch.repeat_interleave(grid[:, 1], counts)
    within = torch.arange(counts.sum()) % (heights * widths)
    rows, columns = within // widths, within % widths
    places = (rows[:, None] * 4 + columns[:, None] + torch.arange(2)).clamp(0, 15)
    weights = (rows[:, None] / heights[:, None] + torch.arange(2)) * 0.5
    return functional.embedding_bag(places, table, per_sample_weights=weights, mode="sum")


def masks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = x[x[:, 0] > 0], y[y[:, 0] > 0]
    third = first + second
    return (third * first - second).sum(0) + (third / (first + 5)).sum(0)


@pytest.mark.parametrize("rewrite", ["never", "auto"])
def test_places_and_weights_are_as_many(rewrite: str) -> None:
    options = {"rewrite": "auto"} if rewrite == "auto" else {}
    table, grid = torch.randn(16, 3), torch.tensor([[2, 3], [4, 2]])
    onnx = to_onnx(CalledWithTwo(bags).eval(), (table, grid), dynamic_shapes=({}, {0: "pictures"}), **options)
    for shapes in ([[2, 3], [4, 2]], [[1, 1]], [[3, 2], [1, 1], [2, 2]]):
        grid = torch.tensor(shapes)
        (found,) = onnx.run({"x": table, "y": grid}).values()
        torch.testing.assert_close(found, bags(table, grid))


@pytest.mark.parametrize("rewrite", ["never", "auto"])
def test_rows_of_two_masks_are_broadcast(rewrite: str) -> None:
    options = {"rewrite": "auto"} if rewrite == "auto" else {}
    example = (torch.randn(5, 3), torch.randn(6, 3))
    example[0][:, 0], example[1][:, 0] = torch.tensor([1.0, 1, 0, 1, 0]), torch.tensor([1.0, 0, 0, 1, 1, 0])
    onnx = to_onnx(CalledWithTwo(masks).eval(), example, dynamic_shapes=({0: "rows"}, {0: "others"}), **options)
    for first, second in ((1, 4), (4, 1), (3, 3), (1, 1), (0, 1), (0, 0)):
        x, y = torch.randn(5, 3), torch.randn(4, 3)
        x[:, 0], y[:, 0] = torch.arange(5) < first, torch.arange(4) < second
        (found,) = onnx.run({"x": x, "y": y}).values()
        torch.testing.assert_close(found, masks(x, y))
