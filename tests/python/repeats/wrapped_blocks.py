"""Models whose layers look equal and are not, each in the way of some library or habit.

Layers are wrapped, hooked, parametrized, cast, shared, skipped, called in another order, or talk to each other through
what is outside of the graph.
"""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import functools
import itertools
import math
import random
import types
from typing import Any

import torch
from stacks import DEPTH, MODELS, WIDTH, Layer, Stack, layers, mixed, model, walks
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

__all__ = ["MODELS"]

# -------------------------------------------------------------------------------- the outside

_DEPTH_NOW: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)
_COUNTS: dict[str, int] = {}
_CACHE: dict[int, Any] = {}


@walks
def a_context_variable(stack: Stack, x: Tensor) -> Tensor:
    for index, layer in enumerate(stack.layers):
        token = _DEPTH_NOW.set(index)
        x = layer(x) * (_DEPTH_NOW.get() + 1)
        _DEPTH_NOW.reset(token)
    return x


@layers
def a_context_variable_inside(layer: Layer, x: Tensor) -> Tensor:
    token = _DEPTH_NOW.set(_DEPTH_NOW.get() + 1)
    try:
        return layer.mixed(x) if _DEPTH_NOW.get() % 2 else layer.mixed(x) - 1
    finally:
        _DEPTH_NOW.reset(token)


@walks
def a_counter_of_the_module(stack: Stack, x: Tensor) -> Tensor:
    _COUNTS["calls"] = 0

    def counted(layer: Layer, x: Tensor) -> Tensor:
        _COUNTS["calls"] += 1
        return layer.mixed(x) * _COUNTS["calls"]

    for layer in stack.layers:
        layer.function = counted
        x = layer(x)
        layer.function = mixed
    return x


@layers
def a_cache_by_the_index(layer: Layer, x: Tensor) -> Tensor:
    if layer.index not in _CACHE:
        _CACHE[layer.index] = math.sqrt(layer.index + 1)
    return layer.mixed(x) / _CACHE[layer.index]


@layers
def a_random_number_of_python(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) * random.Random(layer.index).random()


@layers
def a_closure_over_the_index(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + (lambda: layer.index)()


@layers
def a_partial(layer: Layer, x: Tensor) -> Tensor:
    add = functools.partial(torch.add, alpha=layer.index + 1)
    return add(x, layer.mixed(x))


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float
    shift: tuple[float, ...] = (0.0,)


@layers
def a_dataclass(layer: Layer, x: Tensor) -> Tensor:
    settings = Settings(scale=1.0 / (layer.index + 1), shift=(layer.index * 0.5,))
    return layer.mixed(x) * settings.scale + settings.shift[0]


@layers
def a_namespace(layer: Layer, x: Tensor) -> Tensor:
    settings = types.SimpleNamespace(**({"eps": 0.1} if layer.index < 2 else {"eps": 0.1 + 1e-7}))
    return layer.mixed(x) / settings.eps


@layers
def the_sign_of_a_zero(layer: Layer, x: Tensor) -> Tensor:
    zero = math.copysign(0.0, -1.0 if layer.index % 2 else 1.0)
    return layer.mixed(x) + torch.atan2(torch.full_like(x, zero), -torch.ones_like(x))


@layers
def a_whole_number_or_a_float(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + torch.full((x.shape[1], 1), 3 if layer.index % 2 else 3.0).div(2).to(x.dtype)


@layers
def an_exception_that_is_caught(layer: Layer, x: Tensor) -> Tensor:
    try:
        if layer.index == 2:
            raise KeyError("this layer is another one")
        return layer.mixed(x)
    except KeyError:
        return layer.up(x) * 2


@layers
def an_operator_that_fails(layer: Layer, x: Tensor) -> Tensor:
    y = layer.up(x)
    try:
        y = y @ torch.ones(WIDTH + layer.index % 2, WIDTH)
    except RuntimeError:
        y = y - 1
    return layer.down(y)


# -------------------------------------------------------------------------------- order and number


@walks
def from_the_last_to_the_first(stack: Stack, x: Tensor) -> Tensor:
    for layer in reversed(stack.layers):
        x = layer(x)
    return x


@walks
def some_are_skipped(stack: Stack, x: Tensor) -> Tensor:
    for index, layer in enumerate(stack.layers):
        x = layer(x) if index != 1 else x
    return x


@walks
def an_early_exit(stack: Stack, x: Tensor) -> Tensor:
    for index, layer in enumerate(stack.layers):
        x = layer(x)
        if index == 2:
            break
    return x


@walks
def each_twice(stack: Stack, x: Tensor) -> Tensor:
    for layer in stack.layers:
        x = layer(layer(x) * 2)
    return x


@walks
def a_step_back(stack: Stack, x: Tensor) -> Tensor:
    first, second, third, fourth = stack.layers
    return fourth(first(third(second(first(x)))))


@walks
def each_on_its_own_part(stack: Stack, x: Tensor) -> Tensor:
    return torch.cat([layer(part) for layer, part in zip(stack.layers, x.chunk(4, dim=-1), strict=True)], -1)


MODELS["each_on_its_own_part"] = lambda: Stack(lambda layer, x: x * layer.up.bias[layer.index], each_on_its_own_part)


@walks
def results_of_all(stack: Stack, x: Tensor) -> tuple[Tensor, ...]:
    seen = [x]
    for layer in stack.layers:
        seen.append(layer(sum(seen)))
    return tuple(seen)


@walks
def a_residual_over_two(stack: Stack, x: Tensor) -> Tensor:
    before = x
    for index, layer in enumerate(stack.layers):
        x, before = layer(x) + (before if index % 2 else 0), x
    return x


@walks
def a_dictionary_that_is_handed_on(stack: Stack, x: Tensor) -> Tensor:
    def through(layer: Layer, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        state["sum"] = state.get("sum", 0) + x.mean(-1, keepdim=True)
        return layer.mixed(x) + state["sum"]

    state: dict[str, Tensor] = {}
    for layer in stack.layers:
        layer.function = through
        x = layer(x, state)
        layer.function = mixed
    return x


# -------------------------------------------------------------------------------- weights


@model
def weights_shared_crosswise() -> nn.Module:
    stack = Stack()
    stack.layers[1].up.weight = stack.layers[0].down.weight
    stack.layers[2].down.weight = stack.layers[0].up.weight
    return stack


@model
def one_tied_in_part() -> nn.Module:
    stack = Stack()
    stack.layers[2].up = stack.layers[1].up
    return stack


@model
def a_deep_copy() -> nn.Module:
    stack = Stack()
    stack.layers[3] = copy.deepcopy(stack.layers[0])
    stack.layers[3].index = 9
    return stack


@model
def weights_that_are_views() -> nn.Module:
    stack, all_weights = Stack(), torch.randn(DEPTH, WIDTH, WIDTH)
    for index, layer in enumerate(stack.layers):
        layer.up.weight = nn.Parameter(all_weights[index if index < 2 else 0])
    return stack


@model
def weights_of_other_strides() -> nn.Module:
    stack = Stack()
    stack.layers[2].up.weight = nn.Parameter(torch.randn(WIDTH, WIDTH).t())
    return stack


@model
def frozen_weights() -> nn.Module:
    stack = Stack()
    stack.layers[1].up.weight.requires_grad_(False)
    return stack


@model
def a_layer_of_another_precision() -> nn.Module:
    stack = Stack(lambda layer, x: x + layer.up(x.to(layer.up.weight.dtype)).to(x.dtype))
    stack.layers[2].to(torch.float64)
    return stack


@model
def no_bias_in_one() -> nn.Module:
    stack = Stack()
    stack.layers[2].up.bias = None
    return stack


@model
def a_bias_of_one_alone() -> nn.Module:
    stack = Stack()
    for index in (0, 1, 3):
        stack.layers[index].up.bias = None
    return stack


class Halved(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.scale


@model
def a_parametrization_of_one() -> nn.Module:
    stack = Stack()
    parametrize.register_parametrization(stack.layers[2].up, "weight", Halved())
    return stack


@model
def parametrizations_that_differ() -> nn.Module:
    stack = Stack()
    for index, layer in enumerate(stack.layers):
        parametrize.register_parametrization(layer.up, "weight", Scaled(index + 0.5))
    return stack


@model
def normed_weights() -> nn.Module:
    stack = Stack()
    for layer in itertools.islice(stack.layers, 3):
        parametrizations.weight_norm(layer.up)
    return stack


@model
def buffers_outside_of_the_state() -> nn.Module:
    def with_buffer(layer: Layer, x: Tensor) -> Tensor:
        return layer.mixed(x) + layer.memory

    stack = Stack(with_buffer)
    for index, layer in enumerate(stack.layers):
        layer.register_buffer("memory", torch.full((WIDTH,), float(index)), persistent=index % 2 == 0)
    return stack


@model
def attributes_that_are_tensors() -> nn.Module:
    stack = Stack(lambda layer, x: layer.mixed(x) + layer.table)
    for index, layer in enumerate(stack.layers):
        layer.table = torch.arange(WIDTH) * float(index)
    return stack


class LowRank(nn.Module):
    """An adapter around a linear layer, which may be merged or off."""

    def __init__(self, base: nn.Linear, rank: int, *, active: bool) -> None:
        super().__init__()
        self.base, self.active = base, active
        self.a, self.b = nn.Parameter(torch.randn(rank, WIDTH)), nn.Parameter(torch.randn(WIDTH, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.a.t() @ self.b.t() if self.active else 0)


@model
def adapters() -> nn.Module:
    stack = Stack()
    for index, layer in enumerate(stack.layers):
        layer.up = LowRank(layer.up, 2, active=index != 1)  # type: ignore[assignment]
    return stack


# -------------------------------------------------------------------------------- wrappers and hooks


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs) * self.factor

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


@model
def wrapped_layers() -> nn.Module:
    stack = Stack()
    for index in range(DEPTH):
        stack.layers[index] = Wrapper(stack.layers[index], 1.0 + index // 2)
    return stack


@model
def recomputed_layers() -> nn.Module:
    def walk(stack: Stack, x: Tensor) -> Tensor:
        for index, layer in enumerate(stack.layers):
            x = checkpoint(layer, x, use_reentrant=False) if index % 2 else layer(x)
        return x

    return Stack(walk=walk)


@model
def hooks_with_keywords() -> nn.Module:
    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "factor": kwargs["factor"] + 1}

    def walk(stack: Stack, x: Tensor) -> Tensor:
        for layer in stack.layers:
            x = layer(x, factor=2)
        return x

    stack = Stack(lambda layer, x, factor: layer.mixed(x) * factor, walk)
    stack.layers[1].register_forward_pre_hook(before, with_kwargs=True)
    return stack


@model
def a_hook_that_stores() -> nn.Module:
    class Watched(Stack):
        def forward(self, x: Tensor) -> Any:
            seen: list[Tensor] = []
            hooks = [self.layers[i].up.register_forward_hook(lambda m, a, out: seen.append(out)) for i in (0, 2)]
            x = super().forward(x)
            for hook in hooks:
                hook.remove()
            return x, torch.stack(seen).sum(0)

    return Watched()


@model
def a_hook_of_the_children() -> nn.Module:
    stack = Stack()
    stack.layers[3].down.register_forward_pre_hook(lambda module, args: (args[0].flip(-1),))
    return stack


@model
def a_method_of_the_object() -> nn.Module:
    stack = Stack()
    stack.layers[1].mixed = types.MethodType(lambda self, x: self.down(x), stack.layers[1])  # type: ignore[method-assign]
    return stack


@model
def a_subclass_made_at_run_time() -> nn.Module:
    class Other(Layer):
        def mixed(self, x: Tensor) -> Tensor:
            return super().mixed(x) * 3

    stack = Stack()
    stack.layers[2].__class__ = Other
    return stack


@model
def a_class_that_is_changed() -> nn.Module:
    class Counting(Layer):
        made = 0

    def counting(layer: Counting, x: Tensor) -> Tensor:
        type(layer).made += 1
        return layer.mixed(x) + type(layer).made

    def walk(stack: Stack, x: Tensor) -> Tensor:
        Counting.made = 0
        for layer in stack.layers:
            x = layer(x)
        return x

    stack = Stack(walk=walk)
    stack.layers = nn.ModuleList([Counting(index, counting) for index in range(DEPTH)])
    return stack


@model
def one_in_training() -> nn.Module:
    def by_training(layer: Layer, x: Tensor) -> Tensor:
        return layer.mixed(x) * (2 if layer.training else 1)

    class Mixed(Stack):
        def forward(self, x: Tensor) -> Any:
            self.layers[2].training = True
            try:
                return super().forward(x)
            finally:
                self.layers[2].training = False

    return Mixed(by_training)


@model
def nested_blocks() -> nn.Module:
    class Group(nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.inner = nn.ModuleList([Layer(2 * index + i, numbered) for i in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.inner:
                x = layer(x)
            return x

    def numbered(layer: Layer, x: Tensor) -> Tensor:
        return layer.mixed(x) * (1 if layer.index < 5 else -1)

    return nn.Sequential(*(Group(index) for index in range(3)))


@model
def two_kinds_by_turns() -> nn.Module:
    class Other(Layer):
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            return x - self.up(x) * self.index

    kinds = [Layer(0, mixed), Other(1, mixed), Layer(2, mixed), Other(3, mixed), Other(4, mixed), Layer(5, mixed)]
    return nn.Sequential(*kinds)
