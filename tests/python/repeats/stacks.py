"""Stacks of layers that look equal, and the table of the models that are made of them.

`MODELS` has for each a function that makes the model; it takes `x` of (batch, seq, WIDTH).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

DEPTH = 4
WIDTH = 4

MODELS: dict[str, Callable[[], nn.Module]] = {}


class Layer(nn.Module):
    """What all layers are like; its forward is a function, which is given the layer and what the model shares."""

    def __init__(self, index: int, function: Callable[..., Any]) -> None:
        super().__init__()
        self.index, self.function = index, function
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("memory", torch.zeros(WIDTH))

    def mixed(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, x, *args, **kwargs)


def mixed(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x)


class Stack(nn.Module):
    """Calls its layers one after the other, in the way of `walk`."""

    def __init__(
        self, function: Callable[..., Any] = mixed, walk: Callable[..., Any] | None = None, depth: int = DEPTH
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(index, function) for index in range(depth)])
        self.walk = walk

    def forward(self, x: Tensor) -> Any:
        if self.walk is not None:
            return self.walk(self, x)
        for layer in self.layers:
            x = layer(x)
        return x


def model(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    MODELS[make.__name__] = make
    return make


def layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A stack whose layers do this."""
    MODELS[function.__name__] = lambda: Stack(function)
    return function


def walks(walk: Callable[..., Any]) -> Callable[..., Any]:
    """A stack of plain layers that is walked through like this."""
    MODELS[walk.__name__] = lambda: Stack(walk=walk)
    return walk


def inputs(batch: int, sequence: int) -> Tensor:
    return torch.randn(batch, sequence, WIDTH, generator=torch.Generator().manual_seed(batch * 100 + sequence))
