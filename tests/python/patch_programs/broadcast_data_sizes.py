"""Rows of a mask beside all rows: one of them, or as many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from called import CalledWithTwo
from exportguard import to_onnx


class Largest(torch.nn.Module):
    """The rows of the largest sum, of which there is one or, where all are equal, as many as there are."""

    def __init__(self, beside: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.beside = beside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = x.sum(1)
        return self.beside(x[sums >= sums.max()], x)


def _is_right(model: torch.nn.Module) -> None:
    onnx = to_onnx(model.eval(), (torch.randn(4, 3),), dynamic_shapes=({0: "rows"},))
    for rows in (4, 6, 1):
        for x in (torch.randn(rows, 3), torch.ones(rows, 3)):
            (got,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(got, model(x))


def broadcasts() -> None:
    _is_right(Largest(lambda rows, x: (rows + x) / rows.shape[0]))


def expands() -> None:
    _is_right(Largest(lambda rows, x: rows.expand_as(x).sum(0)))


class ChangesTheLast(torch.nn.Module):
    """Flags behind a place that data tell."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flags = x[:, 0] > 0
        rows = flags[x[:, 1] > 0]
        rows |= x[x[:, 1] > 0][:, 2] > 0
        return rows


def changes() -> None:
    model = ChangesTheLast().eval()
    onnx = to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},))
    for count in (1, 4, 9):
        x = torch.randn(count, 3)
        (got,) = onnx.run({"x": x}).values()
        assert torch.equal(got, model(x))


def _copied(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    z[:] = y
    return z * x


def _of_other_names(compute: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Axes of different names that are equal in the example: one of them may be of one entry."""
    model = CalledWithTwo(compute).eval()
    axes: Any = ({0: "batch", 1: "length"}, {0: "texts", 1: "tokens"})
    onnx = to_onnx(model, (torch.randn(2, 5, 3), torch.randn(2, 5, 3)), dynamic_shapes=axes)
    assert [axis.kept for axis in onnx.axes] == [True] * 4
    for given in ((2, 5), (3, 4)):
        for other in ((given[0], given[1]), (1, given[1]), (given[0], 1), (1, 1)):
            x, y = torch.randn(*given, 3), torch.randn(*other, 3)
            (got,) = onnx.run({"x": x, "y": y}).values()
            torch.testing.assert_close(got, model(x, y))


def expands_axes_of_other_names() -> None:
    expands()
    _of_other_names(lambda x, y: torch.cat([x, y.expand_as(x)], -1))
    _of_other_names(lambda x, y: y.expand(*x.shape).reshape(-1) * 2)
    _of_other_names(lambda x, y: x.gather(1, (y > 0).long().expand_as(x)))
    _of_other_names(lambda x, y: torch.stack([x, torch.broadcast_to(y, x.shape)]))

    _of_other_names(_copied)
    _of_other_names(lambda x, y: torch.zeros_like(x).copy_(y) - x)


PROGRAMS = {
    "broadcast sizes of data": broadcasts,
    "expanded sizes of data": expands_axes_of_other_names,
    "changes of sizes of data": changes,
}
