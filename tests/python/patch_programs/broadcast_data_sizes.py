"""Rows of a mask beside all rows: one of them, or as many."""

from __future__ import annotations

import torch

from exportguard import to_onnx


class Largest(torch.nn.Module):
    """The rows of the largest sum, of which there is one or, where all are equal, as many as there are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = x.sum(1)
        return self.beside(x[sums >= sums.max()], x)

    def beside(self, rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Expanded(Largest):
    def beside(self, rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return rows.expand_as(x).sum(0)


class Divided(Largest):
    def beside(self, rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (rows + x) / rows.shape[0]


def _is_right(model: torch.nn.Module) -> None:
    onnx = to_onnx(model.eval(), (torch.randn(4, 3),), dynamic_shapes=({0: "rows"},))
    for rows in (4, 6, 1):
        for x in (torch.randn(rows, 3), torch.ones(rows, 3)):
            (got,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(got, model(x))


def broadcasts() -> None:
    _is_right(Divided())


def expands() -> None:
    _is_right(Expanded())


PROGRAMS = {"broadcast sizes of data": broadcasts, "expanded sizes of data": expands}
