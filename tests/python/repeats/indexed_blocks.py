"""Models whose layers look equal and differ in an index, in which value a name stands for, or in what a call returns.

Their indices are constants, which torch's modes are not asked for; their values are found by the tensors that live; and
their operators have lists, several results, options and numbers in the place of tensors, which C++ reads.
"""

from __future__ import annotations

import numpy as np
import torch
from stacks import MODELS, WIDTH, Layer, Stack, layers, walks
from torch import Tensor
from torch.nn import functional

__all__ = ["MODELS"]

# -------------------------------------------------------------------------------- indices


@layers
def another_constant_row(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x[:, layer.index % 3, None]


@layers
def from_the_front_or_from_the_back(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + (x[:, :1] if layer.index % 2 else x[:, -1:])


@layers
def a_number_or_a_part_of_one_row(layer: Layer, x: Tensor) -> Tensor:
    row = x[:, 2] if layer.index == 1 else x[:, 2:3].squeeze(1)
    return layer.mixed(x) + row.unsqueeze(1)


@layers
def steps_by_the_index(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x[..., :: 1 + layer.index % 2].sum(-1, keepdim=True)


@layers
def an_ellipsis_in_some(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + (x[..., 0:1] if layer.index % 2 else x[:, :, 0:1])


@layers
def true_in_the_place_of_one(layer: Layer, x: Tensor) -> Tensor:
    row = x[0:1, True] if layer.index == 2 else x[0:1, None]
    return layer.mixed(x) + row.reshape(1, x.shape[1], WIDTH).mean(1, keepdim=True)


@layers
def a_number_of_numpy(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x[:, np.int64(layer.index % 2)].unsqueeze(1)


@layers
def a_list_of_numbers(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x[:, :, [0, layer.index % WIDTH]].sum(-1, keepdim=True)


@layers
def an_index_that_is_a_tensor(layer: Layer, x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[1]).flip(0) if layer.index % 2 else torch.arange(x.shape[1])
    return layer.mixed(x) + x[:, rows]


@layers
def a_part_that_ends_at_a_size(layer: Layer, x: Tensor) -> Tensor:
    end = x.shape[1] if layer.index == 3 else x.shape[1] - 1
    return layer.mixed(x) + x[:, :end].mean(1, keepdim=True)


@layers
def written_by_an_index(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x).clone()
    y[:, 0, layer.index % WIDTH] = 0.5
    return y


# -------------------------------------------------------------------------------- what a name stands for


@layers
def a_sum_under_its_old_name(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x)
    z = y
    z += layer.index % 2
    return y * z


@layers
def the_tensor_that_a_view_is_of(layer: Layer, x: Tensor) -> Tensor:
    y = torch.tanh(layer.mixed(x))
    y[:, 1:].mul_(2) if layer.index % 2 else y[:, :1].mul_(2)
    return y + y[:, 0:1]


@layers
def values_that_die_at_once(layer: Layer, x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.sin(layer.up(x)) + torch.cos(layer.down(x))
    return x


@layers
def the_same_tensor_in_a_new_list(layer: Layer, x: Tensor) -> Tensor:
    parts = [x, layer.up(x)] if layer.index % 2 else [layer.up(x), x]
    return torch.stack(parts)[0] + torch.stack(parts).mean(0)


@walks
def what_an_earlier_layer_dropped(stack: Stack, x: Tensor) -> Tensor:
    before = x
    for layer in stack.layers:
        before, x = x, layer(x) + before.detach()
        del layer
    return x


@layers
def data_of_a_tensor(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x)
    return y + (y.detach() if layer.index % 2 else y.detach().clone())


# -------------------------------------------------------------------------------- what calls take and return


@layers
def one_of_two_results(layer: Layer, x: Tensor) -> Tensor:
    values, places = torch.topk(layer.mixed(x), 2, dim=-1)
    return x + values[..., layer.index % 2 : layer.index % 2 + 1] + places[..., :1].to(x.dtype)


@layers
def another_result_of_one_call(layer: Layer, x: Tensor) -> Tensor:
    most, place = layer.mixed(x).max(dim=-1, keepdim=True)
    return x + (most if layer.index == 1 else place.to(x.dtype))


@layers
def parts_of_a_list(layer: Layer, x: Tensor) -> Tensor:
    one, two = layer.mixed(x).chunk(2, dim=-1)
    return torch.cat([two, one] if layer.index % 2 else [one, two], dim=-1)


@layers
def parts_of_other_lengths(layer: Layer, x: Tensor) -> Tensor:
    one, two = layer.mixed(x).split([1, 3] if layer.index % 2 else [3, 1], dim=-1)
    return torch.cat([two, one], dim=-1)


@layers
def a_number_for_a_tensor(layer: Layer, x: Tensor) -> Tensor:
    y = layer.mixed(x)
    return torch.where(y > 0, y, 0.5 * layer.index) if layer.index % 2 else torch.where(y > 0, y, y * 0.5)


@layers
def sizes_and_numbers_in_one_list(layer: Layer, x: Tensor) -> Tensor:
    batch, tokens, width = x.shape
    y = layer.mixed(x).reshape(batch, tokens, 2, width // 2)
    return y.transpose(2, 3).reshape(batch, tokens, width) if layer.index % 2 else y.flatten(2)


@layers
def a_fill_of_a_size(layer: Layer, x: Tensor) -> Tensor:
    return layer.mixed(x) + x.new_full((x.shape[1], 1), 1.0 / (2 if layer.index == 2 else x.shape[1]))


@layers
def an_option_that_is_none(layer: Layer, x: Tensor) -> Tensor:
    weight = None if layer.index % 2 else layer.memory + 1
    return functional.layer_norm(layer.mixed(x), [WIDTH], weight, None)


@layers
def rounded_to_other_digits(layer: Layer, x: Tensor) -> Tensor:
    return torch.round(layer.mixed(x), decimals=layer.index % 2) if layer.index < 2 else layer.mixed(x)


@layers
def parts_that_are_padded(layer: Layer, x: Tensor) -> Tensor:
    padded = functional.pad(layer.mixed(x), [0, 0, 1, 0] if layer.index % 2 else [0, 0, 0, 1])
    return padded[:, 1:] + padded[:, :-1]
