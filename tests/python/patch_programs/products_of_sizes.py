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


class KeepsTheRest(torch.nn.Module):
    """Rows behind the second of those that data choose, kept in a list by one branch: their number is a least one."""

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        rest = []
        rows = (chosen == 1).nonzero(as_tuple=True)[0]
        if len(rows) > 2:
            rest.append(rows[2:])
        made = x.clone()
        made[rows] = x[rows] * 2 + len(rest)
        return made


def _is_the_least_of_sizes() -> None:
    model, axes = KeepsTheRest().eval(), ({0: "rows"}, {0: "rows"})
    onnx = to_onnx(model, (torch.ones(5, 3), torch.arange(5) % 2), dynamic_shapes=axes, rewrite="auto")
    for rows in (1, 2, 4, 9, 12):
        inputs = torch.randn(rows, 3), torch.arange(rows) % 2
        (got,) = onnx.run(dict(zip(("x", "chosen"), inputs, strict=True))).values()
        torch.testing.assert_close(got, model(*inputs))


def _both() -> None:
    _is_a_size_of_three_factors()
    _is_the_least_of_sizes()


PROGRAMS = {"products of several sizes": _both}
