"""Layers that look equal and are not: what they hand on, keep, share or call differs, and so does the way to them."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from stacks import DEPTH, MODELS, WIDTH, Layer, Stack, layers, mixed, model, walks
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["MODELS"]


def called_as(layer: Layer, function: Callable[..., Any], *args: Any) -> Any:
    """What a layer returns that does something else for once."""
    layer.function = function
    try:
        return layer(*args)
    finally:
        layer.function = mixed


# -------------------------------------------------------------------------------- the way through the layers


@walks
def a_generator_over_the_layers(stack: Stack, x: Tensor) -> Tensor:
    def steps(x: Tensor) -> Iterator[Tensor]:
        for layer in stack.layers:
            x = layer(x) * (layer.index + 1)
            yield x

    return functools.reduce(torch.add, steps(x))


@walks
def generators_that_are_run_later(stack: Stack, x: Tensor) -> Tensor:
    def parts(layer: Layer, x: Tensor) -> Iterator[Tensor]:
        h = layer.up(x)

        def later() -> Iterator[Tensor]:
            yield layer.down(h) * layer.index
            yield torch.tanh(h) - x

        return later()

    started: list[Iterator[Tensor]] = []
    for layer in stack.layers:
        started.append(called_as(layer, parts, x))
        x = x + next(started[-1])
        if len(started) > 1:
            x = x * next(started[-2])
    return x


@walks
def functions_that_are_called_later(stack: Stack, x: Tensor) -> Tensor:
    def later(layer: Layer, x: Tensor) -> Callable[[Tensor], Tensor]:
        h = torch.tanh(layer.up(x))
        return lambda y: layer.down(h) * y + layer.index

    for function in reversed([called_as(layer, later, x) for layer in stack.layers]):
        x = function(x)
    return x


@walks
def a_window_of_states(stack: Stack, x: Tensor) -> Tensor:
    window = collections.deque([x, x * 2, x * 3], maxlen=3)

    def windowed(layer: Layer, x: Tensor) -> Tensor:
        window.append(layer.mixed(x) + window[0] - window[-1])
        return window[-1]

    for layer in stack.layers:
        x = called_as(layer, windowed, x)
    return x + window.popleft()


@walks
def skips_of_the_shape_of_a_u(stack: Stack, x: Tensor) -> Tensor:
    skips: list[Tensor] = []
    for layer in stack.layers[: DEPTH // 2]:
        x = layer(x)
        skips.append(x)
        x = nn.functional.pad(x[:, ::2], (0, 0, 0, 1))
    for layer in stack.layers[DEPTH // 2 :]:
        skip = skips.pop()
        x = layer(x.repeat_interleave(2, 1)[:, : skip.shape[1]] + skip)
    return x


@model
def layers_by_name_in_another_order() -> nn.Module:
    def walk(stack: Stack, x: Tensor) -> Tensor:
        return functools.reduce(lambda y, name: stack.named[name](y) * (1 + int(name)), "20310", x)

    stack = Stack(walk=walk)
    stack.named = nn.ModuleDict({str(layer.index): layer for layer in stack.layers})
    return stack


@model
def layers_that_are_dropped_in_training() -> nn.Module:
    def walk(stack: Stack, x: Tensor) -> Tensor:
        for layer in stack.layers:
            kept = torch.rand([])
            x = x if stack.training and kept < 0.5 else layer(x)
        return x

    return Stack(walk=walk)


class Tree(nn.Module):
    def __init__(self, depth: int, index: int = 0) -> None:
        super().__init__()
        self.linear, self.index = nn.Linear(WIDTH, WIDTH), index
        self.below = nn.ModuleList([Tree(depth - 1, 2 * index + child) for child in (1, 2)] if depth else [])

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x)) * (1 + self.index % 3)
        for child in self.below:
            h = h + child(h)
        return h


@model
def a_tree() -> nn.Module:
    return Tree(3)


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.step = nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def forward(self, x: Tensor, left: int = 5) -> Tensor:
        if left == 0:
            return self.last(x)
        h = self.step(self.forward(x, left - 1)) * left
        return h + self(x, left - 2) if left > 3 else h


@model
def one_that_calls_itself() -> nn.Module:
    return Recursive()


# -------------------------------------------------------------------------------- weights and buffers


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


@model
def weights_under_two_names() -> nn.Module:
    stack = nn.Sequential(*[Two() for _ in range(5)])
    stack[1].up.weight = stack[1].down.weight
    stack[3].up = stack[3].down
    stack[4].down.weight = stack[0].up.weight
    return stack


@model
def weights_that_are_passed_in() -> nn.Module:
    def lent(layer: Layer, x: Tensor) -> Tensor:
        weights = {"weight": layer.down.weight * (layer.index + 1), "bias": layer.up.bias}
        return x + torch.tanh(torch.func.functional_call(layer.up, weights, (x,)))

    return Stack(lent)


@model
def buffers_of_other_values() -> nn.Module:
    stack = Stack(lambda layer, x: layer.mixed(x) * layer.memory, depth=5)
    for layer in stack.layers:
        layer.memory.fill_(layer.index - 1.5)
    return stack


@layers
def a_buffer_that_is_assigned(layer: Layer, x: Tensor) -> Tensor:
    before, layer.memory = layer.memory, x.mean((0, 1)) * layer.index
    return layer.mixed(x) + before + layer.memory


@layers
def a_buffer_that_is_clamped_first(layer: Layer, x: Tensor) -> Tensor:
    layer.memory.copy_(layer.memory.clamp(-0.1, 0.1) + 1)
    return layer.mixed(x) * layer.memory


@model
def a_class_attribute_between_the_layers() -> nn.Module:
    class Scaled(Layer):
        factor = 1

        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return self.mixed(x) * type(self).factor

    def walk(stack: Stack, x: Tensor) -> Tensor:
        for layer in stack.layers:
            Scaled.factor = layer.index + 1
            x = layer(x)
        return x

    stack = Stack(walk=walk)
    stack.layers = nn.ModuleList([Scaled(index, mixed) for index in range(DEPTH)])
    return stack


@model
def a_layer_of_eight_bits() -> nn.Module:
    class Rounded(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.register_buffer("scale", linear.weight.detach().abs().amax(1, keepdim=True) / 127)
            self.register_buffer("weight", (linear.weight.detach() / self.scale).round().to(torch.int8))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight * self.scale)

    stack = Stack(depth=5)
    stack.layers[2].up = Rounded(stack.layers[2].up)  # type: ignore[assignment]
    return stack


# -------------------------------------------------------------------------------- memory, identity and attributes


@layers
def parts_that_are_written(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x)
    first, second = h.chunk(2, -1)
    second.mul_(2 if layer.index % 2 else 3)
    return x + h.tanh() + torch.cat([second, first], -1)


@layers
def another_part_that_is_written(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x).clone()
    h.unbind(-1)[layer.index].zero_()
    return x + h


@layers
def a_detached_part_that_is_written(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x).clone()
    h.detach()[..., layer.index % 2] = 0
    return x + h


@walks
def a_part_of_what_the_one_before_returned(stack: Stack, x: Tensor) -> Tensor:
    x = part = x * 1

    def writing(layer: Layer, x: Tensor, part: Tensor) -> Tensor:
        h = layer.mixed(x)
        part.add_(1)
        return h + x

    for layer in stack.layers:
        x = called_as(layer, writing, x, part)
        part = x[:, :1] if layer.index != 1 else torch.zeros_like(x[:, :1])
    return x + part


@walks
def a_place_for_results(stack: Stack, x: Tensor) -> Tensor:
    place = torch.empty_like(x)

    def placed(layer: Layer, x: Tensor) -> Tensor:
        torch.add(layer.up(x), x, out=place)
        return layer.mixed(place)

    for layer in stack.layers:
        x = called_as(layer, placed, x) + place * layer.index
    return x


@layers
def numbers_by_identity(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x)
    numbers = {id(h): 2, id(x): 3}
    return x + h * numbers[id(h.to(torch.float32))] + x.contiguous() * numbers[id(x.contiguous())]


@layers
def an_attribute_of_a_tensor(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x)
    h.tag = layer.index  # type: ignore[attr-defined]
    y = torch.tanh(h)
    return x + y * h.to(torch.float32).tag * getattr(y, "tag", 5)  # type: ignore[attr-defined]


@walks
def an_attribute_that_is_handed_on(stack: Stack, x: Tensor) -> Tensor:
    def counting(layer: Layer, x: Tensor) -> Tensor:
        h = layer.mixed(x)
        h.depth = getattr(x, "depth", 0) + 1  # type: ignore[attr-defined]
        return h

    for layer in stack.layers:
        x = called_as(layer, counting, x)
    return x * x.depth  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------- what calls are made in


class Doubling(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.tanh else result


class Counting(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@layers
def a_mode_of_functions(layer: Layer, x: Tensor) -> Tensor:
    with Doubling() as mode:
        h = layer.mixed(x)
    return x + h * mode.calls


@layers
def a_mode_of_operators_inside(layer: Layer, x: Tensor) -> Tensor:
    with Counting() as mode:
        h = torch.tanh(layer.up(x))
    return x + h * (1 if mode.calls else 2)


@walks
def a_mode_of_operators_around(stack: Stack, x: Tensor) -> Tensor:
    for layer in stack.layers:
        with Counting() as mode:
            x = layer(x)
        x = x * (1 if mode.calls else 2)
    return x


@layers
def rows_by_vmap(layer: Layer, x: Tensor) -> Tensor:
    return x + torch.vmap(lambda row: torch.tanh(layer.up(row)) * (layer.index + 1))(x)


@layers
def a_gradient(layer: Layer, x: Tensor) -> Tensor:
    return x + torch.func.grad(lambda y: torch.tanh(layer.up(y)).sum() * (layer.index + 1))(x)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: int) -> Tensor:
        return torch.tanh(x) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


@layers
def a_function_with_a_gradient_of_its_own(layer: Layer, x: Tensor) -> Tensor:
    return x + Scaled.apply(layer.up(x), layer.index + 1)


@layers
def sums_of_rows_that_are_chosen(layer: Layer, x: Tensor) -> Tensor:
    chosen = layer.up(x) > 0
    return x + (layer.up(x)[chosen] * layer.down(x)[chosen]).sum() * (layer.index + 1)
