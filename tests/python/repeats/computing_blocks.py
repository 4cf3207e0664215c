"""Models whose layers look equal and compute something else: modes, writes, sizes, data and operators differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from stacks import DEPTH, MODELS, WIDTH, Layer, Stack, layers, mixed, walks
from torch import Tensor
from torch.nn import functional

__all__ = ["MODELS"]

# -------------------------------------------------------------------------------- modes


@layers
def autocast_in_some(layer: Layer, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.float16, enabled=layer.index == 2):
        return layer.mixed(x).float()


@layers
def gradients_in_some(layer: Layer, x: Tensor) -> Tensor:
    with torch.set_grad_enabled(layer.index % 2 == 0):
        y = layer.mixed(x)
    return y.detach() if layer.index == 1 else y


@walks
def another_default_dtype(stack: Stack, x: Tensor) -> Tensor:
    for index, layer in enumerate(stack.layers):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if index == 2 else before)
        try:
            layer.function = lambda layer, x: layer.mixed(x) + torch.full((1,), 0.1).to(x.dtype)
            x = layer(x)
        finally:
            torch.set_default_dtype(before)
            layer.function = mixed
    return x


# -------------------------------------------------------------------------------- writes and aliases


@walks
def views_of_one_table(stack: Stack, x: Tensor) -> Tensor:
    table = torch.zeros(x.shape[0], DEPTH, WIDTH)

    def writes(layer: Layer, x: Tensor, row: Tensor) -> Tensor:
        row.add_(x.mean(1))
        return layer.mixed(x) + table.sum(1, keepdim=True)

    for index, layer in enumerate(stack.layers):
        layer.function = writes
        x = layer(x, table[:, index])
        layer.function = mixed
    return x + table.sum()


@walks
def one_that_returns_what_it_takes(stack: Stack, x: Tensor) -> Tensor:
    y = x.clone()
    for index, layer in enumerate(stack.layers):
        layer.function = (lambda layer, x: x) if index == 1 else mixed
        z = layer(y)
        z.add_(1)
        y = z + y
        layer.function = mixed
    return y


@layers
def written_in_place_by_some(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x)
    z = y[..., :2]
    if layer.index % 2:
        z.mul_(2)
    return y


@layers
def a_view_or_a_copy(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x).transpose(0, 1)
    y = y.contiguous() if layer.index < 2 else y
    y.reshape(-1, WIDTH)[0] += 1
    return y.transpose(0, 1)


@layers
def a_buffer_that_grows(layer: Layer, x: Tensor) -> Tensor:
    with torch.no_grad():
        layer.memory.add_(layer.index + 1)
    return layer.mixed(x) + layer.memory


@walks
def states_of_the_layer_before(stack: Stack, x: Tensor) -> Tensor:
    kept: list[Tensor] = []

    def attends(layer: Layer, x: Tensor) -> Tensor:
        if layer.index < 2:
            kept.append(layer.up(x))
        return layer.mixed(x) + kept[-1].softmax(-1)

    for layer in stack.layers:
        layer.function = attends
        x = layer(x)
        layer.function = mixed
    return x


# -------------------------------------------------------------------------------- sizes and data


@walks
def a_sequence_that_is_halved(stack: Stack, x: Tensor) -> Tensor:
    for layer in stack.layers[:3]:
        x = layer(x)[:, ::2]
    return x


@walks
def a_sequence_that_grows(stack: Stack, x: Tensor) -> Tensor:
    for layer in stack.layers:
        x = torch.cat([x, layer(x[:, :1])], dim=1)
    return x


@layers
def a_window_by_the_index(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x[:, : layer.index + 2].mean(1, keepdim=True)


@layers
def a_part_of_the_size(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) * (x.shape[1] // (layer.index // 2 + 1))


@layers
def a_shift_by_the_index(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x).roll(layer.index % 3, dims=1)


@layers
def rows_that_are_chosen(layer: Layer, x: Tensor) -> Tensor:
    rows = (layer.up(x).sum(-1) > 0).nonzero()
    return layer.mixed(x) + rows.float().sum() / (layer.index + 1)


@layers
def a_number_of_the_data(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) * x.abs().max().item()


@layers
def a_condition_inside(layer: Layer, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > layer.index, lambda x: layer.mixed(x), lambda x: layer.up(x) * 2, (x,))


@layers
def a_condition_between(layer: Layer, x: Tensor) -> Tensor:
    y = layer.up(x)
    z = torch.cond(y.mean() > 0, lambda y: y + 1, lambda y: y - 1, (y,))
    return layer.down(z) + (x if layer.index != 2 else 0)


@layers
def complex_rotations(layer: Layer, x: Tensor) -> Tensor:
    angles = torch.arange(x.shape[1]).float()[:, None] * torch.tensor([1.0, 0.1 * (layer.index + 1)])
    turned = torch.view_as_complex(layer.mixed(x).unflatten(-1, (2, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


@layers
def masks_that_differ(layer: Layer, x: Tensor) -> Tensor:
    size = x.shape[1]
    mask = torch.ones(size, size, dtype=torch.bool).tril(layer.index // 2)
    return x + functional.scaled_dot_product_attention(layer.up(x), layer.down(x), x, attn_mask=mask)


@layers
def causal_in_some(layer: Layer, x: Tensor) -> Tensor:
    return x + functional.scaled_dot_product_attention(layer.up(x), layer.down(x), x, is_causal=layer.index % 2 == 1)


@layers
def sorted_in_some(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x).sort(dim=1, descending=layer.index == 2).values


@layers
def the_most_of_some(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x.topk(1 + layer.index % 2, dim=-1).values.sum(-1, keepdim=True)


# -------------------------------------------------------------------------------- operators


@layers
def activations_by_name(layer: Layer, x: Tensor) -> Tensor:
    return getattr(functional, ["gelu", "relu", "gelu", "silu"][layer.index])(layer.mixed(x))


@layers
def one_operator_by_two_names(layer: Layer, x: Tensor) -> Tensor:
    y = layer.up(x)
    return x + (y.clamp(min=0) if layer.index % 2 else y.relu())


@layers
def another_argument_by_keyword(layer: Layer, x: Tensor) -> Tensor:
    return x + functional.gelu(layer.up(x), approximate="tanh" if layer.index == 3 else "none")


@layers
def a_generator_of_parts(layer: Layer, x: Tensor) -> Tensor:
    def parts() -> Iterator[Tensor]:
        for place in range(layer.index + 1):
            yield layer.up(x) * place

    return layer.mixed(x) + sum(parts(), torch.zeros(()))


@layers
def tensors_as_constants(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + torch.tensor([1.0, 2.0, 3.0, float(layer.index)])
