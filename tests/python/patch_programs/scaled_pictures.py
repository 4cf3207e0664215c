"""Pictures whose new sizes are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exportguard import to_onnx

SIZES = ([3, 5], [1, 4], [2, 2], [1, 1], [9, 7])


class Scaled(torch.nn.Module):
    """A picture of some rank, scaled to the sizes that it is given."""

    def __init__(self, rank: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.rank, self.options = rank, options

    def forward(self, x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        height, width = int(sizes[0]), int(sizes[1])
        return torch.nn.functional.interpolate(x, size=[height, width, height + 1][: self.rank], **self.options)


class Parts(torch.nn.Module):
    def forward(self, x: torch.Tensor, sizes: torch.Tensor) -> Any:
        height, width = int(sizes[0]), int(sizes[1])
        pool = torch.nn.functional.adaptive_avg_pool2d
        return pool(x, (height, width)), pool(x, (None, width)), pool(x, height)


def is_right(model: torch.nn.Module, rank: int) -> None:
    x = torch.randn(1, 2, *[4] * rank)
    onnx = to_onnx(model.eval(), (x, torch.tensor(SIZES[0])), rewrite="auto")
    for sizes in map(torch.tensor, SIZES):
        expected = torch.utils._pytree.tree_leaves(model(x, sizes))
        for got, want in zip(onnx.run({"x": x, "sizes": sizes}).values(), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def all_right(forms: Sequence[tuple[int, str]]) -> None:
    for rank, mode in forms:
        is_right(Scaled(rank, {"mode": mode, "align_corners": True}), rank)


def scale_from_corner_to_corner() -> None:
    all_right([(1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")])


def scale_without_holes() -> None:
    # Of one column and other heights torch 2.13 repeats the first row.
    model = Scaled(2, {"mode": "bilinear", "antialias": True})
    is_right(model, 2)


def average_parts() -> None:
    is_right(Parts(), 2)
    is_right(Scaled(2, {"mode": "area"}), 2)


PROGRAMS = {
    "scales of pictures": scale_from_corner_to_corner,
    "sizes and factors of pictures": scale_without_holes,
    "parts that data count": average_parts,
}
