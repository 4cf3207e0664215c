"""Inputs of other sizes, made of those of an example."""

from __future__ import annotations

import pytest
import torch

from exportguard import to_onnx
from exportguard.axes.resizing import wrapped


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integers_in_order_stay_so(dtype: torch.dtype) -> None:
    assert wrapped(torch.tensor([0, 2, 5], dtype=dtype), [5]).tolist() == [0, 0, 2, 2, 5]
    assert wrapped(torch.tensor([0, 2, 5], dtype=dtype), [2]).tolist() == [0, 2]
    assert wrapped(torch.tensor([0, 5, 2], dtype=dtype), [5]).tolist() == [0, 5, 2, 0, 5]
    assert wrapped(torch.tensor([[0, 5]], dtype=dtype), [1, 3]).tolist() == [[0, 5, 0]]


def test_floats_come_again() -> None:
    assert wrapped(torch.tensor([0.0, 2.0]), [3]).tolist() == [0, 2, 0]


class Bags(torch.nn.Module):
    """Sums of embeddings; where each begins is an input, and torch reads beyond its memory if those are in disorder."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(30, 4, mode=mode)

    def forward(self, tokens: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.bag(tokens, offsets)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_where_bags_begin(mode: str) -> None:
    model = Bags(mode).eval()
    tokens, offsets = torch.arange(12) * 2 % 30, torch.tensor([0, 3, 4, 9])
    onnx = to_onnx(model, (tokens, offsets), dynamic_shapes=({0: "tokens"}, {0: "bags"}))
    for begins in ([0, 3, 4, 9], [0], [0, 0, 2, 2, 7, 11]):
        other = torch.tensor(begins)
        got = next(iter(onnx.run({"tokens": tokens, "offsets": other}).values()))
        torch.testing.assert_close(got, model(tokens, other))


class Lengths(torch.nn.Module):
    """Means of the parts of a tensor, of which the ends are an input."""

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        if (ends[1:] < ends[:-1]).any():
            raise ValueError("the ends are in disorder")
        sums = torch.cat([x.new_zeros(1), x.cumsum(0)])
        return sums[ends[1:]] - sums[ends[:-1]]


def test_a_model_that_wants_order_is_tried_at_more_of_them() -> None:
    x, ends = torch.rand(9), torch.tensor([0, 2, 5, 9])
    onnx = to_onnx(Lengths().eval(), (x, ends), dynamic_shapes=({0: "numbers"}, {0: "ends"}), rewrite="auto")
    other = torch.tensor([0, 1, 1, 2, 4, 9])
    torch.testing.assert_close(next(iter(onnx.run({"x": x, "ends": other}).values())), Lengths()(x, other))
