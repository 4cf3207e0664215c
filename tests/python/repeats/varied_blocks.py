"""Models whose layers look equal and differ by parts of torch.nn, by what they write and by how they are called.

Many of them make one call again and again, for which torch's fake kernels are asked once.
"""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any

import torch
from stacks import DEPTH, MODELS, WIDTH, Layer, Stack, layers, model, walks
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODELS"]


def parted(make: Any, function: Any) -> nn.Module:
    """A stack whose layers have one more part, `make(index)`."""
    stack = Stack(function)
    for index, layer in enumerate(stack.layers):
        layer.add_module("part", make(index))
    return stack


def of_part(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + layer.get_submodule("part")(x)


def of_rows(layer: Layer, x: Tensor) -> Tensor:
    """The part sees (batch, channels, seq)."""
    return layer.mixed(x) + layer.get_submodule("part")(x.transpose(1, 2)).transpose(1, 2)


# -------------------------------------------------------------------------------- parts


@model
def convolutions_of_other_dilations() -> nn.Module:
    return parted(lambda n: nn.Conv1d(WIDTH, WIDTH, 3, dilation=n % 2 + 1, padding=n % 2 + 1), of_rows)


@model
def convolutions_of_other_padding_modes() -> nn.Module:
    modes = ("zeros", "reflect", "replicate", "circular")
    return parted(lambda n: nn.Conv1d(WIDTH, WIDTH, 3, padding=1, padding_mode=modes[n]), of_rows)


@model
def pools_of_other_windows() -> nn.Module:
    return parted(lambda n: nn.AvgPool1d(2 * n + 1, stride=1, padding=n, count_include_pad=n % 2 == 0), of_rows)


@model
def norms_of_other_groups() -> nn.Module:
    return parted(lambda n: nn.GroupNorm((1, 2, 4, 2)[n], WIDTH, eps=10.0**-n), of_rows)


@model
def activations_of_other_slopes() -> nn.Module:
    parts = (nn.LeakyReLU(0.1), nn.ELU(0.5), nn.ELU(1.5), nn.Hardtanh(-1, 2))
    return parted(lambda n: parts[n], of_part)


@model
def experts_of_other_counts() -> nn.Module:
    def routed(layer: Layer, x: Tensor) -> Tensor:
        experts: Any = layer.get_submodule("part")
        weights = (x.mean(-1, keepdim=True) * torch.arange(1.0, len(experts) + 1)).softmax(-1)
        return layer.mixed(x) + sum(expert(x) * weights[..., n, None] for n, expert in enumerate(experts))

    return parted(lambda n: nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(n % 3 + 1)]), routed)


@model
def experts_of_one_count_and_other_choices() -> nn.Module:
    def routed(layer: Layer, x: Tensor) -> Tensor:
        experts: Any = layer.get_submodule("part")
        most = x.softmax(-1).topk(layer.index % 2 + 1, dim=-1)
        total = torch.zeros_like(x)
        for place, expert in enumerate(experts):
            total = total + expert(x) * (most.values * (most.indices == place)).sum(-1, keepdim=True)
        return layer.mixed(x) + total

    return parted(lambda _: nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)]), routed)


@model
def dropouts_of_which_some_train() -> nn.Module:
    stack = parted(lambda _: nn.Dropout(0.0), of_part)
    for layer in [*stack.get_submodule("layers").children()][::2]:
        part: Any = layer.get_submodule("part")
        part.train = lambda mode=True, part=part: part
    return stack


@model
def embeddings_of_other_tables() -> nn.Module:
    def looked_up(layer: Layer, x: Tensor) -> Tensor:
        return layer.mixed(x) + layer.get_submodule("part")((x > 0).sum(-1).clamp(max=2))

    return parted(lambda n: nn.Embedding(3, WIDTH, padding_idx=n % 3), looked_up)


@model
def cells_that_hand_a_state_on() -> nn.Module:
    def walk(stack: Stack, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for number, layer in enumerate(stack.layers):
            x = layer(x)
            cell: Any = stack.get_submodule("cells")[number % 2]  # type: ignore[index]
            state = cell(x[:, number], state)
        return x + state[:, None]

    stack = Stack(walk=walk)
    stack.add_module("cells", nn.ModuleList([nn.GRUCell(WIDTH, WIDTH) for _ in range(2)]))
    return stack


# -------------------------------------------------------------------------------- weights


@model
def weights_tied_within_some() -> nn.Module:
    stack = Stack()
    for layer in [*stack.layers][1::2]:
        layer.get_submodule("up").weight = layer.get_submodule("down").weight  # type: ignore[assignment]
    return stack


@model
def parts_that_change_places() -> nn.Module:
    stack = Stack()
    for layer in [*stack.layers][::3]:
        layer.up, layer.down = layer.down, layer.up  # type: ignore[assignment]
    return stack


@walks
def weights_of_the_layer_before(stack: Stack, x: Tensor) -> Tensor:
    for one, other in itertools.pairwise(stack.layers):
        x = torch.func.functional_call(other, dict(one.named_parameters()), (x,)) + other(x)
    return x


@walks
def parts_in_a_ring(stack: Stack, x: Tensor) -> Tensor:
    ring = collections.deque(layer.get_submodule("up") for layer in stack.layers)
    for number, layer in enumerate(stack.layers):
        ring.rotate(number)
        x = layer(x) + ring[0](x)
    return x


@walks
def a_scale_that_the_layer_before_sets(stack: Stack, x: Tensor) -> Tensor:
    stack.layers[0].__dict__["scale"] = 0.5
    for number, layer in enumerate(stack.layers):
        x = layer(x) * layer.__dict__.pop("scale")
        following: Any = stack.layers[(number + 1) % DEPTH]
        following.__dict__["scale"] = 1.0 if number % 2 else x.shape[1] / 7
    stack.layers[0].__dict__.pop("scale")
    return x


@model
def one_buffer_for_all() -> nn.Module:
    def stored(layer: Layer, x: Tensor) -> Tensor:
        table = layer.get_buffer("table")
        seen = table[layer.index - 1].clone()
        table[layer.index] = x.mean((0, 1))
        return layer.mixed(x) + seen + table.sum(0)

    stack = Stack(stored)
    table = torch.zeros(DEPTH, WIDTH)
    for layer in stack.layers:
        layer.register_buffer("table", table)
    return stack


@layers
def a_buffer_that_is_read_before_or_after(layer: Layer, x: Tensor) -> Tensor:
    memory = layer.get_buffer("memory")
    before = memory * 1.0
    memory.add_(x.mean((0, 1)))
    return layer.mixed(x) + (before if layer.index % 2 else memory)


@model
def buffers_of_other_strides() -> nn.Module:
    stack = Stack(lambda layer, x: layer.mixed(x) + (x @ layer.table).reshape(x.shape))
    for number, layer in enumerate(stack.layers):
        table = torch.randn(WIDTH, WIDTH)
        layer.register_buffer("table", table.t() if number % 2 else table)
    return stack


# -------------------------------------------------------------------------------- memory


@layers
def equal_results_of_which_one_is_written(layer: Layer, x: Tensor) -> Tensor:
    one, other, last = layer.up(x), layer.up(x), layer.up(x)
    (one if layer.index % 2 else other).mul_(2)
    last[:, 0] = one[:, 0]
    return layer.mixed(x) + one - other * last


@walks
def equal_results_outside_of_which_one_is_written(stack: Stack, x: Tensor) -> Tensor:
    one, other = torch.tanh(x), torch.tanh(x)
    part = other[:, :2]
    one.mul_(3)
    for layer in stack.layers:
        x = layer(x) + one - other
        other.add_(0.5)
    part.sub_(1)
    return x + other


@layers
def a_chain_of_equal_calls_that_is_written(layer: Layer, x: Tensor) -> Tensor:
    y = torch.tanh(x)
    z = torch.tanh(y)
    y.add_(layer.index)
    last = torch.tanh(z)
    z.view(-1)[: WIDTH // 2].zero_()
    return layer.mixed(x) + y * z + last


@layers
def the_same_twice_or_a_copy(layer: Layer, x: Tensor) -> Tensor:
    one = layer.up(x)
    other = one if layer.index % 2 else one.clone()
    one.sigmoid_()
    return layer.mixed(x) + one * other


@layers
def a_place_for_the_sum_in_some(layer: Layer, x: Tensor) -> Tensor:
    y = layer.up(x)
    if layer.index % 2:
        torch.add(y, x, out=y)
    return layer.mixed(x) + y


@layers
def a_copy_into_an_empty_tensor(layer: Layer, x: Tensor) -> Tensor:
    place = torch.empty_like(x)
    place.copy_(layer.up(x) if layer.index % 2 else x)
    place[..., layer.index :].mul_(0.5)
    return layer.mixed(x) + place


@layers
def pictures_whose_channels_come_last_in_some(layer: Layer, x: Tensor) -> Tensor:
    picture = x[:, None].expand(-1, 2, -1, -1)
    form = torch.channels_last if layer.index % 2 else torch.contiguous_format
    picture = (picture.contiguous(memory_format=form) * 2).tanh()
    is_last = picture.is_contiguous(memory_format=torch.channels_last)
    return layer.mixed(x) + picture.sum(1) * (2.0 if is_last else 1.0) + picture.stride(1) % 7


@layers
def rows_or_columns_behind_equal_calls(layer: Layer, x: Tensor) -> Tensor:
    y = torch.tanh(x.transpose(0, 1) if layer.index % 2 else x)
    return layer.mixed(x) + torch.tanh(y * 1.0).reshape(-1, WIDTH).view(y.shape).mean((0, 1))


# -------------------------------------------------------------------------------- operators


@layers
def sums_by_other_letters(layer: Layer, x: Tensor) -> Tensor:
    letters = ("bsw,vw->bsv", "bsw,wv->bsv", "bsw,vw->bsw", "bsw,wv->bsw")
    return layer.mixed(x) + torch.einsum(letters[layer.index], x, layer.up.weight)


@layers
def directions_that_differ(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x.flip(layer.index % 3).cumsum((1, 2)[layer.index % 2]).roll(layer.index, 1)


@layers
def an_exponent_of_another_class(layer: Layer, x: Tensor) -> Tensor:
    exponents: tuple[Any, ...] = (2, 2.0, torch.tensor(2.0), torch.full((WIDTH,), 2.0))
    return layer.mixed(x) + x ** exponents[layer.index]


@layers
def limits_that_are_missing(layer: Layer, x: Tensor) -> Tensor:
    low, high = ((None, 0.5), (-0.5, None), (-0.5, 0.5), (0, None))[layer.index]
    return layer.mixed(x) + x.clamp(low, high)


@layers
def a_choice_of_another_class(layer: Layer, x: Tensor) -> Tensor:
    other = (1, 1.0, True, torch.ones(()))[layer.index]
    return layer.mixed(x) + torch.where(x > 0, (x > 0.5).long(), other) * 0.5


@layers
def sizes_that_are_made_by_other_modes(layer: Layer, x: Tensor) -> Tensor:
    mode = ("nearest", "linear", "nearest-exact", "linear")[layer.index]
    larger = functional.interpolate(x.transpose(1, 2), scale_factor=2.0, mode=mode).transpose(1, 2)
    return layer.mixed(x) + larger.mean(1, keepdim=True)


@layers
def attention_of_other_scales(layer: Layer, x: Tensor) -> Tensor:
    options: tuple[dict[str, Any], ...] = ({}, {"scale": 0.5}, {"is_causal": True}, {"scale": 0.5, "is_causal": True})
    query = layer.up(x)[:, None]
    attended = functional.scaled_dot_product_attention(query, query, x[:, None], **options[layer.index])
    return layer.mixed(x) + attended[:, 0]


@layers
def a_softmax_of_another_dtype(layer: Layer, x: Tensor) -> Tensor:
    kind = (None, torch.float64, None, torch.float32)[layer.index]
    weights = layer.up(x).softmax(-1, dtype=kind)
    return layer.mixed(x) + (weights * (2 if weights.dtype == torch.float64 else 1)).to(x.dtype)


@layers
def bits_that_are_shifted(layer: Layer, x: Tensor) -> Tensor:
    numbers = (x * 8).long()
    numbers = numbers << layer.index if layer.index % 2 else numbers >> layer.index
    return layer.mixed(x) + (numbers & 3) + (numbers % 3 if layer.index > 1 else numbers.remainder(3.0))


@layers
def parts_in_another_order(layer: Layer, x: Tensor) -> Tensor:
    parts = x.split((1, 3) if layer.index % 2 else (2, 2), dim=-1)
    return layer.mixed(x) + torch.cat(parts[::-1] if layer.index > 1 else parts, -1)


@layers
def rows_that_are_scattered(layer: Layer, x: Tensor) -> Tensor:
    place = torch.full_like(x[:, :1], layer.index, dtype=torch.int64)
    return layer.mixed(x) + torch.zeros_like(x).scatter(1, place, x[:, :1]) * x.gather(1, place)


@layers
def a_double_in_between(layer: Layer, x: Tensor) -> Tensor:
    y = x.double() if layer.index == 2 else x
    return layer.mixed(x) + (torch.tanh(y) + torch.tanh(y) * torch.finfo(y.dtype).bits / 32).float()


# -------------------------------------------------------------------------------- calls


LIBRARY: Any = torch.library.Library("exportguard_varied", "DEF")  # type: ignore[no-untyped-call]
LIBRARY.define("scaled(Tensor x, float by) -> Tensor")
LIBRARY.impl("scaled", lambda x, by: torch.tanh(x) * by + torch.tanh(x), "CompositeImplicitAutograd")


@layers
def an_operator_of_a_library(layer: Layer, x: Tensor) -> Tensor:
    scaled: Any = torch.ops.exportguard_varied.scaled
    return layer.mixed(x) + scaled(x, float(layer.index)) * scaled(x, 2.0)


class Tagged(torch.Tensor):
    """A class without operators of its own."""


@layers
def a_class_of_tensors_in_some(layer: Layer, x: Tensor) -> Tensor:
    y = torch.tanh(x)
    return layer.mixed(x) + y * (2 if isinstance(layer.up.weight, Tagged) else 1) + torch.tanh(x) * layer.index


@walks
def a_mask_that_is_remembered(stack: Stack, x: Tensor) -> Tensor:
    @functools.lru_cache
    def mask(kind: int) -> Tensor:
        ones = torch.ones_like(x[..., :1])
        return ones.cumsum(1) if kind else ones

    for number, layer in enumerate(stack.layers):
        x = layer(x) * mask(number % 2) * 0.1
    return x


@walks
def some_layers_leave_early(stack: Stack, x: Tensor) -> Tensor:
    kept = []
    for number, layer in enumerate(stack.layers):
        y = layer(x)
        if number == 1:
            kept.append(y)
            continue
        x = y
        if number == 2:
            break
    return x + sum(kept)


@walks
def two_ways_at_once(stack: Stack, x: Tensor) -> Tensor:
    one, other = x, x.flip(1)
    for number, layer in enumerate(stack.layers):
        one, other = layer(one), stack.layers[-number](other)
        if number % 2:
            one, other = other, one
    return one - other


@model
def hooks_that_change_what_is_given() -> nn.Module:
    stack = Stack()
    for number, layer in enumerate(stack.layers):
        layer.register_forward_pre_hook(lambda _, given, number=number: (given[0] * (number + 1), *given[1:]))
        if number == 2:
            layer.get_submodule("down").register_forward_hook(lambda _, __, result: torch.tanh(result) + result)
    return stack


@layers
def precisions_that_are_cast_by_some(layer: Layer, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=layer.index == 1):
        y = torch.tanh(layer.up(x))
    with torch.autocast("cpu", enabled=False):
        z = torch.tanh(layer.up(x))
    return layer.mixed(x) + y.float() * (0.01 if y.dtype == torch.bfloat16 else 1) + z
