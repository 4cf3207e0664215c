"""Models whose layers look equal and differ by what they keep, compare, loop over or hold in another memory."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import torch
from stacks import DEPTH, MODELS, WIDTH, Layer, Stack, layers, mixed, model, walks
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

__all__ = ["MODELS"]

# -------------------------------------------------------------------------------- lists that begin empty


@layers
def states_that_begin_empty(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([], dtype=x.dtype, device=x.device)
    states = torch.cat([states, layer.mixed(x)], -2)
    return torch.cat([states, x], -2)[:, -x.shape[1] :] + states.mean(1, keepdim=True)


@layers
def states_that_begin_empty_in_other_dtypes(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([], dtype=torch.float64 if layer.index % 2 else torch.float32)
    wide = torch.cat([states, (layer.mixed(x) * 1e-9 + 1).flatten()])
    return x + ((wide - 1).view(x.shape) * 1e9).to(x.dtype)


@layers
def states_that_begin_with_other_sizes(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([[]] * (layer.index + 1))
    return layer.mixed(x) * (1 + states.shape[0]) + states.sum() + states.numel()


@layers
def states_that_begin_with_an_entry(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([float(layer.index)] * (layer.index // 2))
    return layer.mixed(x) + torch.cat([states, x[0, 0]]).sum() + torch.tensor(layer.index).item()


@layers
def states_that_begin_empty_and_are_filled_in_place(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([])
    states.fill_(layer.index).add_(1)
    grown = torch.tensor([[]]).new_full((2,), float(layer.index))
    return layer.mixed(x) + torch.cat([states, grown]).sum() + (2 if states.requires_grad else 1)


@layers
def states_that_begin_empty_with_a_gradient(layer: Layer, x: Tensor) -> Tensor:
    states = torch.tensor([], requires_grad=layer.index % 2 == 1)
    return layer.mixed(x) * (2 if states.requires_grad else 1) + states.detach().sum()


# -------------------------------------------------------------------------------- constants


@layers
def equal_constants(layer: Layer, x: Tensor) -> Tensor:
    least = torch.tensor(torch.finfo(x.dtype).min, dtype=x.dtype)
    kept = torch.where(layer.mixed(x) > torch.tensor(0.25).to(x.dtype), x, least)
    return kept.clamp(min=-1) + torch.tensor([0.5, 0.25, 0.125, 1.0])


@layers
def constants_that_differ_by_layer(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) * torch.tensor(1.0 + layer.index) + torch.tensor([1.0, 2.0, 3.0, 4.0 + layer.index])


@layers
def constants_that_look_equal(layer: Layer, x: Tensor) -> Tensor:
    zero = torch.tensor(-0.0 if layer.index % 2 else 0.0)
    one = torch.tensor(1, dtype=torch.int32 if layer.index % 2 else torch.int64)
    nothing = torch.tensor(float("nan"))
    narrow = torch.tensor(0.1, dtype=torch.float16 if layer.index < 2 else torch.bfloat16)
    return layer.mixed(x) + torch.atan2(zero, torch.tensor(-1.0)) + one * narrow + nothing.nan_to_num(layer.index)


@layers
def constants_that_are_read(layer: Layer, x: Tensor) -> Tensor:
    number = torch.tensor(3)
    for _ in range(int(number - 1)):
        x = layer.mixed(x)
    return x * (number * 2).item() + (number > layer.index).item()


@layers
def constants_that_are_written(layer: Layer, x: Tensor) -> Tensor:
    number, same = torch.tensor(1.0), torch.tensor([2.0])
    seen = same.view(())
    number.add_(layer.index)
    same.mul_(3)
    return layer.mixed(x) * number.item() + seen.item() + same


@layers
def constants_that_are_written_with_values(layer: Layer, x: Tensor) -> Tensor:
    sums = torch.tensor(0.0)
    part = sums.expand(2)
    sums.copy_(x.sum() * (layer.index + 1))
    return layer.mixed(x) + part.sum() + sums


@walks
def constants_that_are_handed_on(stack: Stack, x: Tensor) -> Tensor:
    for number, layer in enumerate(stack.layers):
        scale = torch.tensor(0.5 + number // 2)
        x = layer(x * scale) + scale.item()
    return x


@model
def constants_from_the_layer_before() -> nn.Module:
    def scaled(layer: Layer, pair: Any) -> Any:
        x, scale = pair
        return layer.mixed(x) * scale, torch.tensor(float(layer.index // 2)) + scale.item()

    def walk(stack: Stack, x: Tensor) -> Tensor:
        pair = x, torch.tensor(1.5)
        for layer in stack.layers:
            pair = layer(pair)
        return pair[0] + pair[1]

    return Stack(scaled, walk)


# -------------------------------------------------------------------------------- weights


@layers
def weights_that_are_scaled_for_the_call(layer: Layer, x: Tensor) -> Tensor:
    weights = {name: weight * (layer.index + 1) for name, weight in layer.up.named_parameters()}
    return x + torch.func.functional_call(layer.up, weights, (x,)).tanh()


@model
def weights_of_no_entries() -> nn.Module:
    def joined(layer: Layer, x: Tensor) -> Tensor:
        more = layer.get_parameter("more")
        return torch.cat([layer.mixed(x), x[..., : more.shape[0]]], -1)[..., -WIDTH:] * (1 + more.numel())

    stack = Stack(joined)
    for number, layer in enumerate(stack.layers):
        layer.register_parameter("more", nn.Parameter(torch.zeros(number % 2)))
    return stack


@model
def buffers_that_are_expanded() -> nn.Module:
    def added(layer: Layer, x: Tensor) -> Tensor:
        table = layer.get_buffer("table")
        return layer.mixed(x) + table.contiguous()[0] * table.stride(0) + table.sum()

    stack = Stack(added)
    for number, layer in enumerate(stack.layers):
        row = torch.randn(1, WIDTH).expand(3, WIDTH)
        layer.register_buffer("table", row if number % 2 else row.clone())
    return stack


@model
def batch_norms_of_other_momenta_some_in_training() -> nn.Module:
    def normed(layer: Layer, x: Tensor) -> Tensor:
        return layer.mixed(layer.get_submodule("norm")(x.transpose(1, 2)).transpose(1, 2))

    stack = Stack(normed)
    for number, layer in enumerate(stack.layers):
        layer.add_module("norm", nn.BatchNorm1d(WIDTH, momentum=0.1 * (number + 1)))
    # What trains does so also where the stack is told not to.
    for layer in [*stack.layers][1::2]:
        norm: Any = layer.get_submodule("norm")
        norm.train = lambda mode=True, norm=norm: norm
    return stack


# -------------------------------------------------------------------------------- what is kept and compared


@model
def hooks_in_another_order() -> nn.Module:
    def doubled(_module: object, _inputs: object, result: Tensor) -> Tensor:
        return result * 2

    def raised(_module: object, _inputs: object, result: Tensor) -> Tensor:
        return result + 1

    stack = Stack()
    for number, layer in enumerate(stack.layers):
        for hook in (doubled, raised) if number % 2 else (raised, doubled):
            layer.register_forward_hook(hook)
    return stack


@model
def a_number_of_the_thread() -> nn.Module:
    local = threading.local()

    def divided(layer: Layer, x: Tensor) -> Tensor:
        local.calls = 1 if layer.index == 0 else local.calls + 1
        return layer.mixed(x) / local.calls

    return Stack(divided)


@walks
def sizes_that_modules_keep(stack: Stack, x: Tensor) -> Tensor:
    total: Any = 0
    for number, layer in enumerate(stack.layers):
        x = layer(x)
        total = total + x.shape[1]
        if number == 1:
            x = torch.cat([x, x[:, :1]], 1)
        layer.__dict__["seen"] = total
        x = x * (layer.__dict__["seen"] / (x.shape[1] + number))
    return x + sum(layer.__dict__.pop("seen") for layer in stack.layers)


@walks
def tensors_compared_by_identity(stack: Stack, x: Tensor) -> Tensor:
    first, last = x, None
    for number, layer in enumerate(stack.layers):
        y = x if number == 2 else layer(x)
        x = y * 3 if y is last else y + 1 if y is first else y
        last = x
        x = x.to(torch.float32) if number == 1 else x.clone()
        x = x * 1.5 if x is last else x
    return x


@walks
def a_generator_that_is_sent_to(stack: Stack, x: Tensor) -> Tensor:
    def scaled(x: Tensor) -> Generator[Tensor, Tensor, None]:
        factor = 1.0
        while True:
            y = yield x * factor
            factor, x = factor + 0.25, x + y

    generator = scaled(x)
    x = next(generator)
    for layer in stack.layers:
        x = generator.send(layer(x))
    return x


@walks
def parts_that_are_read_at_the_end(stack: Stack, x: Tensor) -> Tensor:
    parts = []
    for number, layer in enumerate(stack.layers):
        x = layer(x)
        parts.append(x[:, : number % 2 + 1].transpose(0, 1))
    return x + torch.cat(parts).sum(0)[:, None]


@walks
def a_sum_that_all_write_to(stack: Stack, x: Tensor) -> Tensor:
    total = x.clone()
    part = total[..., :2]
    for number, layer in enumerate(stack.layers):
        total += layer(total)
        if number == 1:
            part.mul_(0.5)
    return total


@layers
def random_numbers_of_their_own(layer: Layer, x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(layer.index)
        factor = 1 + torch.initial_seed() % 3
    return layer.mixed(x) * factor


# -------------------------------------------------------------------------------- layout and loops


@layers
def a_layout_that_is_asked_for_by_some(layer: Layer, x: Tensor) -> Tensor:
    turned = layer.up(x).transpose(0, 1)
    if layer.index % 2:
        turned = turned.contiguous()
    return x + turned.reshape(turned.shape[0], -1).tanh().view(turned.shape).transpose(0, 1)


@layers
def the_layout_of_what_is_gone(layer: Layer, x: Tensor) -> Tensor:
    table = layer.up(x)[..., None] * layer.down.weight
    is_flat = (table * 2 if layer.index == 2 else (table * 2).transpose(-1, -2)).is_contiguous()
    return layer.mixed(x) * (2.0 if is_flat else 0.5)


@layers
def a_loop_inside(layer: Layer, x: Tensor) -> Tensor:
    def goes_on(step: Tensor, _: Tensor) -> Tensor:
        return step < layer.index + 1

    def next_step(step: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return step + 1, state * 0.5 + layer.index

    _, state = while_loop(goes_on, next_step, (torch.zeros((), dtype=torch.int64), layer.mixed(x)))
    return state


@layers
def a_scan_inside(layer: Layer, x: Tensor) -> Tensor:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return state + row * (layer.index + 1), state * 1.0

    last, rows = scan(step, torch.zeros(x.shape[0], WIDTH), x.transpose(0, 1))
    return layer.mixed(rows.transpose(0, 1)) * 0.1 + last[:, None]


@model
def stacks_that_take_turns() -> nn.Module:
    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = Stack(mixed).layers
            self.other = Stack(lambda layer, x: layer.mixed(x).relu()).layers

        def forward(self, x: Tensor) -> Tensor:
            y = x
            for number in range(DEPTH):
                x = self.one[number](x - y if number == 2 else x + y)
                y = self.other[number](y * x)
            return x + y

    return Turns()
