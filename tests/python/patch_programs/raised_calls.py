"""Layers of which some take another argument, as it is found by calling them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from exportguard import to_onnx


class WithLengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.linear(x) if lengths is None else self.linear(x) * lengths.sum()


class Raising(nn.Module):
    """Raises inside of a module that it calls, at shapes that this does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([WithLengths(), nn.Linear(4, 4), nn.ReLU(), WithLengths(), nn.Linear(4, 4)])
        self.raising = Raising()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.blocks:
            try:
                x = layer(x, lengths=x.new_ones(2))
            except TypeError:
                x = layer(x)
            try:
                x = x + self.raising(x)
            except RuntimeError:
                x = x * 2
        return x


def goes_on_behind_calls_that_raised() -> None:
    model = Layers().eval()
    made = to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (3, 1, 6):
        x = torch.randn(rows, 4)
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


PROGRAMS = {"calls that raise": goes_on_behind_calls_that_raised}
