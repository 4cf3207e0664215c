"""Layers with states whose axes have no names, so that each layer has symbols of its own, equal to others' or not.

A layer is given `x` of (batch, seq, WIDTH) and its state, keys and values of (batch, past, WIDTH). `MODELS` has them
by name, `LENGTHS` the lengths that the states may have where these are not all equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.nn.functional import softmax

DEPTH = 4
WIDTH = 4

MODELS: dict[str, Callable[..., Any]] = {}
LENGTHS: dict[str, list[int]] = {}


class Layer(nn.Module):
    """One layer; what it does is a function."""

    def __init__(self, index: int, function: Callable[..., Any]) -> None:
        super().__init__()
        self.index, self.function = index, function
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def joined(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.cat([state[0], self.key(x)], dim=1), torch.cat([state[1], self.value(x)], dim=1)

    def mixed(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor], shared: dict[str, Any]) -> Tensor:
        made: Tensor = self.function(self, x, state, shared)
        return made


class Model(nn.Module):
    """Calls its layers one after the other, each with its state."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(index, function) for index in range(DEPTH)])

    def forward(self, x: Tensor, states: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        halves = [keys * 0.5 for keys, _ in states]
        shared: dict[str, Any] = {"states": states, "outputs": [], "first": states[0][0], "halves": halves}
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state, shared)
        return (x, *shared["outputs"])


def layer(function: Callable[..., Any]) -> Callable[..., Any]:
    MODELS[function.__name__] = function
    return function


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """A layer whose state has a length of its own."""
    LENGTHS[function.__name__] = [4, 7, 9, 6]
    return layer(function)


def apart_behind_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """A layer whose state has a length of its own, but for the first two."""
    LENGTHS[function.__name__] = [7, 7, 9, 6]
    return layer(function)


# -------------------------------------------------------------------------------- lengths that become equal


@layer
def attends(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def attends_by_hand(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    return own.mixed(x + softmax(own.query(x) @ keys.transpose(1, 2), dim=-1) @ values)


@layer
def a_mask_of_the_first(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    mask = torch.zeros(x.shape[1], shared["first"].shape[1] + x.shape[1])
    return own.mixed(x + attention(own.query(x), keys, values, attn_mask=mask))


@layer
def a_mask_in_some(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    mask = torch.ones(x.shape[1], keys.shape[1]).tril(1) if own.index % 2 else None
    return own.mixed(x + softmax(own.query(x) @ keys.transpose(1, 2) + (0 if mask is None else mask), -1) @ values)


@layer
def a_scale_by_layer(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    return own.mixed(x + attention(own.query(x) * (own.index + 0.5), keys, values))


@layer
def another_function_behind(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    x = x + attention(own.query(x), keys, values)
    return own.mixed(x).relu() if own.index == 2 else own.mixed(x).sigmoid()


@layer
def values_that_are_asked_for_again(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    return own.mixed(x + attention(own.query(x), keys, values)) + values.mean(1, keepdim=True)


@layer
def values_that_some_ask_for_again(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    x = own.mixed(x + attention(own.query(x), keys, values))
    return x - values.sum(1, keepdim=True) if own.index in (1, 3) else x


@layer
def states_that_are_returned(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    shared["outputs"] += [keys, values]
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def several_heads(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = (one.unflatten(-1, (2, 2)).transpose(1, 2) for one in own.joined(x, state))
    heads = own.query(x).unflatten(-1, (2, 2)).transpose(1, 2)
    return own.mixed(x + attention(heads, keys, values).transpose(1, 2).reshape(x.shape))


@layer
def heads_that_are_repeated(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    again = [one[:, None].expand(-1, 2, -1, -1).reshape(-1, one.shape[1], WIDTH) for one in (keys, values)]
    queries = own.query(x)[:, None].expand(-1, 2, -1, -1).reshape(-1, x.shape[1], WIDTH)
    return own.mixed(x + attention(queries, *again).unflatten(0, (-1, 2)).sum(1))


@layer
def the_state_of_the_layer_before(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    before = shared["states"][max(own.index - 1, 0)]
    keys, values = own.joined(x, (state[0], before[1]))
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def one_state_for_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, shared["states"][own.index // 2 * 2])
    return own.mixed(x + attention(own.query(x), keys, values)) + state[0].sum(1, keepdim=True)


@layer
def keys_and_values_swapped(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state[::-1] if own.index % 2 else state)
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def a_state_that_is_not_joined(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = state if own.index == 1 else own.joined(x, state)
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def what_was_joined_is_written(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    if own.index > 1:
        values[:, -1] *= 2
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def a_view_of_what_was_joined(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    last = values[:, -1:]
    if own.index % 2:
        values.mul_(2)
    return own.mixed(x + attention(own.query(x), keys, values) + last)


@layer
def another_order_of_memory(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    if own.index == 2:
        values = values.transpose(1, 2).contiguous().transpose(1, 2)
    return own.mixed(x + attention(own.query(x), keys, values))


@layer
def another_precision_of_the_state(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    if own.index == 2:
        keys, values = keys.double(), values.double()
    return own.mixed(x + attention(own.query(x).to(keys.dtype), keys, values).float())


@layer
def what_a_layer_hands_on(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    x = own.mixed(x + attention(own.query(x), keys, values + shared.get("handed", 0)))
    shared["handed"] = values.mean(1, keepdim=True)
    return x


@layer
def a_closure_over_the_state(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    attend = functools.partial(attention, key=own.joined(x, state)[0], value=own.joined(x, state)[1])
    return own.mixed(x + attend(own.query(x)))


# -------------------------------------------------------------------------------- lengths that do not


@apart
def means(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    return own.mixed(x + state[0].mean(1, keepdim=True) - state[1].amax(1, keepdim=True))


@apart
def a_length_as_a_number(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    return own.mixed(x * state[0].shape[1] - state[1].shape[1])


@apart
def lengths_that_are_added(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    return own.mixed(x + torch.ones(state[0].shape[1] + state[1].shape[1]).sum())


@apart
def lengths_of_all_so_far(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    shared["length"] = shared.get("length", 0) + state[0].shape[1]
    return own.mixed(x / shared["length"] + state[1].mean(1, keepdim=True))


@apart
def rows_of_all_so_far(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    shared["rows"] = torch.cat([shared["rows"], state[0]], 1) if "rows" in shared else state[0]
    return own.mixed(x + shared["rows"].mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart
def a_length_in_some(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    x = own.mixed(x + state[0].mean(1, keepdim=True) + state[1].mean(1, keepdim=True))
    return x * state[0].shape[1] if own.index % 2 else x


@apart
def the_last_rows(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    return own.mixed(x + state[0][:, -1:] + state[1][:, -2:].sum(1, keepdim=True))


@apart
def attends_each_on_its_own(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys = torch.cat([state[0], own.key(x)], dim=1)
    x = x + softmax(own.query(x) @ keys.transpose(1, 2), dim=-1).amax(-1, keepdim=True)
    return own.mixed(x + state[1].mean(1, keepdim=True))


@apart
def a_table_as_long_as_the_state(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    steps = torch.arange(state[0].shape[1], dtype=torch.float32)[None, :, None]
    return own.mixed(x + (state[0] * steps).sum(1, keepdim=True) + state[1].mean(1, keepdim=True))


# -------------------------------------------------------------------------------- lengths that do in the first two


@apart_behind_two
def a_mask_of_the_first_in_the_first_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    mask = torch.zeros(x.shape[1], shared["first"].shape[1] + x.shape[1]) if own.index < 2 else None
    return own.mixed(x + attention(own.query(x), keys, values, attn_mask=mask))


@apart_behind_two
def a_test_in_the_first_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = own.joined(x, state)
    if own.index < 2 and keys.shape[1] - x.shape[1] != shared["first"].shape[1]:
        raise ValueError("another length than the first")
    return own.mixed(x + attention(own.query(x), keys, values))


@apart_behind_two
def the_first_is_added_in_the_first_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    doubled = state[0] * 2
    doubled = doubled + (shared["first"] if own.index < 2 else state[0])
    return own.mixed(x + doubled.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def the_first_is_added_late_in_the_first_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    x = own.mixed(x + state[0].mean(1, keepdim=True)) * state[1].mean(1, keepdim=True).sigmoid()
    return x + (state[0] + shared["first"]).sum(1, keepdim=True) if own.index < 2 else x


@apart_behind_two
def a_failure_before_the_first_is_added(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    doubled = state[0] * 2
    try:
        if own.index > 1:
            raise KeyError(own.index)
        doubled = doubled + shared["first"]
    except KeyError:
        doubled = doubled.neg()
    return own.mixed(x + doubled.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def keys_and_values_are_added_in_the_first_two(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    keys, values = state[0].exp(), state[1].exp()
    if own.index < 2:
        return own.mixed(x + (keys + values + shared["first"]).mean(1, keepdim=True))
    return own.mixed(x + keys.mean(1, keepdim=True) + values.mean(1, keepdim=True))


@apart_behind_two
def the_first_by_another_name(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    doubled = state[0] * 2 + shared.get("kept", state[0])
    if own.index == 0:
        shared["kept"] = state[0]
    elif own.index == 1:
        del shared["kept"]
    return own.mixed(x + doubled.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def a_table_of_the_first_in_the_second(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    rows = (shared["first"] if own.index == 1 else state[0]).shape[1]
    doubled = state[0] * 2 + torch.ones(1, rows, 1)
    return own.mixed(x + doubled.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def a_table_of_the_first_or_of_one_row(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    table = torch.ones(1, shared["first"].shape[1] if own.index == 1 else 1, 1)
    x = x.tanh()
    return own.mixed(x + (state[0] * 2 + table).mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def a_bias_made_before_the_layers(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    doubled = state[0] * 2 + shared["halves"][0 if own.index < 2 else own.index]
    return own.mixed(x + doubled.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


@apart_behind_two
def the_first_is_added_under_another_function(own: Layer, x: Tensor, state: Any, shared: Any) -> Tensor:
    raised = state[0].exp()
    raised = raised + shared["first"] if own.index < 2 else raised.double().float() if own.index == 2 else raised * 3
    return own.mixed(x + raised.mean(1, keepdim=True) + state[1].mean(1, keepdim=True))


def inputs(batch: int, sequence: int, lengths: list[int]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """`x`, and for each layer keys and values of its length."""
    generator = torch.Generator().manual_seed(batch * 100 + sequence)

    def drawn(rows: int) -> Tensor:
        return torch.randn(batch, rows, WIDTH, generator=generator)

    return drawn(sequence), [(drawn(length), drawn(length)) for length in lengths]
