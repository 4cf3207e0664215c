"""Blocks that look equal and are not: of one class with equal parameters, each of which does something else somewhere.

`BLOCKS` has for each a function of the block, its input and what all blocks of the model share; `caches` are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

DEPTH = 5
WIDTH = 4


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Block(nn.Module):
    def __init__(self, index: int, forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.index, self.function = index, forward
        self.scale, self.calls, self.memory = 0.5 + index, 0, []
        self.options = {"flag": index % 2 == 0, "sizes": [1, 2] if index < 3 else [2, 1]}
        self.lin, self.lin2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.batch_norm, self.drop = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5)
        self.register_buffer("buf", torch.randn(WIDTH))
        self.table = torch.arange(WIDTH) * float(index % 2)

    def forward(self, x: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        return self.function(self, x, state)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).tanh()


class Model(nn.Module):
    """`x` of (batch, seq, WIDTH) through all blocks; what they put into `state["seen"]` is returned too."""

    def __init__(self, forward: Callable[..., torch.Tensor], change: Callable[[nn.ModuleList], None] | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(index, forward) for index in range(DEPTH)])
        self.eval()
        if change is not None:
            change(self.layers)

    def forward(self, x: torch.Tensor, caches: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        state: dict[str, Any] = {"caches": caches, "seen": [], "tokens": x}
        x = x * 1
        for layer in self.layers:
            x = layer(x, state)
        return (x, *state["seen"])


class Case(NamedTuple):
    forward: Callable[..., torch.Tensor]
    change: Callable[[nn.ModuleList], None] | None = None


#: onnxruntime has no kernels for these on the CPU.
NOT_RUN = {"autocast_in_some"}

BLOCKS: dict[str, Case] = {}


def block(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    BLOCKS[function.__name__] = Case(function)
    return function


# ------------------------------------------------------------------------------------------------ numbers and flags


@block
def plain(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x)


@block
def another_scale(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * b.scale


@block
def another_sign_of_zero(b: Block, x: Any, state: Any) -> Any:
    return x + (b.hidden(x) * (-0.0 if b.index == 2 else 0.0)).reciprocal().clamp(-1, 1)


@block
def a_float_or_an_integer(b: Block, x: Any, state: Any) -> Any:
    return x + torch.full_like(b.lin(x), 1.0 if b.index % 2 else True) + (b.lin(x) > 0).sum(-1, keepdim=True) * 1


@block
def another_dtype_of_a_factory(b: Block, x: Any, state: Any) -> Any:
    return x + torch.ones(WIDTH, dtype=torch.float64 if b.index == 2 else torch.float32)


@block
def an_integer_factor_or_a_float(b: Block, x: Any, state: Any) -> Any:
    index = torch.arange(x.shape[1]) * (2 if b.index % 2 else 2.0)
    return x + b.hidden(x) * index[:, None]


@block
def another_operator_by_flag(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    return x + (h.relu() if b.index % 2 else torch.sigmoid(h))


@block
def another_option_in_a_dict(b: Block, x: Any, state: Any) -> Any:
    h = b.lin2(x) if b.options["flag"] else b.lin(x)
    return x + torch.cat(h.split([*b.options["sizes"], 1], -1)[::-1], -1)


@block
def another_slice(b: Block, x: Any, state: Any) -> Any:
    start = min(b.index, 2)
    return x + b.hidden(x)[:, start : start + 1]


@block
def another_axis(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x).mean(1 if b.index % 2 else 2, keepdim=True)


@block
def another_factor_of_a_size(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * (x.shape[1] * (b.index + 1))


@block
def the_same_factor_of_sizes(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * x.shape[1] / x.shape[0]


@block
def one_axis_or_another_of_equal_size(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * (x.shape[0] if b.index % 2 else 2)


@block
def a_branch_on_a_size(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) if x.shape[1] > 3 + b.index else x - b.hidden(x)


@block
def an_early_exit_on_a_size(b: Block, x: Any, state: Any) -> Any:
    if b.index == 3 and x.shape[1] > 2:
        return x
    return x + b.hidden(x)


@block
def a_dtype_by_layer(b: Block, x: Any, state: Any) -> Any:
    return (x.double() + b.hidden(x).double()).float() if b.index == 3 else x + b.hidden(x)


@block
def a_dtype_from_a_layer_on(b: Block, x: Any, state: Any) -> Any:
    return (x + b.hidden(x.float())).double() if b.index >= 2 else x + b.hidden(x)


@block
def a_complex_number(b: Block, x: Any, state: Any) -> Any:
    z = torch.complex(b.hidden(x), x)
    return x + (z * z).real if b.index % 2 else x + (z * z).imag


@block
def a_closure(b: Block, x: Any, state: Any) -> Any:
    index = b.index
    function = (lambda h: h * 2) if index == 1 else (lambda h: h + index)
    return x + function(b.hidden(x))


@block
def a_scalar_of_python_arithmetic(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * math.sqrt(b.index + 1) ** 2


@block
def a_default_dtype(b: Block, x: Any, state: Any) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if b.index == 2 else torch.float32)
    try:
        extra = torch.ones(WIDTH) * 0.5
    finally:
        torch.set_default_dtype(before)
    return x + b.hidden(x) * extra.to(x.dtype)


# ------------------------------------------------------------------------------------------------ tensors from outside


@block
def a_mask_of_the_first(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    mask = state.setdefault("mask", (h > 0).float())
    return x + h * mask


@block
def what_an_earlier_one_made(b: Block, x: Any, state: Any) -> Any:
    before, state["before"] = state.get("before"), b.hidden(x)
    return x + state["before"] if before is None else x + state["before"] * before


@block
def an_input_of_another_one(b: Block, x: Any, state: Any) -> Any:
    state.setdefault("all", []).append(x)
    return x + state["all"][b.index // 2] * b.hidden(x)


@block
def a_tensor_used_twice(b: Block, x: Any, state: Any) -> Any:
    other = x if b.index % 2 else state["tokens"]
    return torch.addcmul(x, other, b.hidden(other))


@block
def operands_the_other_way_round(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    return x + (h - x if b.index % 2 else x - h)


@block
def another_parameter_of_one_shape(b: Block, x: Any, state: Any) -> Any:
    lin = b.lin2 if b.index == 2 else b.lin
    return x + lin(x)


@block
def a_parameter_twice(b: Block, x: Any, state: Any) -> Any:
    return x + b.lin2(b.hidden(x)) if b.index % 2 else x + b.lin(b.hidden(x))


@block
def a_constant(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) + torch.tensor([0.1 * b.index, 1.0, 2.0, float(b.index)])


@block
def an_attribute_that_is_a_tensor(b: Block, x: Any, state: Any) -> Any:
    return x + b.hidden(x) * b.table


@block
def a_growing_sequence(b: Block, x: Any, state: Any) -> Any:
    return torch.cat([x, b.hidden(x)[:, :1]], 1)


@block
def an_identity(b: Block, x: Any, state: Any) -> Any:
    return x if b.index % 2 else x + b.hidden(x)


@block
def an_output_that_is_a_view_of_the_input(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x).transpose(0, 1) if b.index % 2 else b.hidden(x)
    state["seen"].append(h[:1])
    return x + b.hidden(x)


@block
def other_strides(b: Block, x: Any, state: Any) -> Any:
    return (x + b.hidden(x)).transpose(0, 1).contiguous().transpose(0, 1) if b.index == 1 else x + b.hidden(x)


@block
def rows_or_columns_of_one_memory(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    h = h.transpose(0, 1) if b.index == 2 else h
    flat = h.reshape(-1, WIDTH)
    return x + flat.view(h.shape).transpose(0, 1) if b.index == 2 else x + flat.view(h.shape)


# ------------------------------------------------------------------------------------------------ outputs


@block
def a_collected_value(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    state["seen"].append(h)
    return x + b.lin2(h)


@block
def a_list_of_values(b: Block, x: Any, state: Any) -> Any:
    parts = list(b.hidden(x).split(2, -1))
    state["seen"].extend(parts)
    return x + torch.cat(parts[::-1], -1)


@block
def a_value_that_only_some_return(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    if b.index in (1, 4):
        state["seen"].append(h * 2)
    return x + h


@block
def a_named_tuple(b: Block, x: Any, state: Any) -> Any:
    pair = Pair(b.hidden(x), x)
    state["pair"] = pair if b.index % 2 else Pair(pair.second, pair.first)
    return state["pair"].first + state["pair"].second * 2


@block
def several_results(b: Block, x: Any, state: Any) -> Any:
    values, indices = b.hidden(x).topk(2, -1)
    return x + values.sum(-1, keepdim=True) + (indices[..., :1] if b.index % 2 else indices[..., 1:]).float()


@block
def a_dict_of_values(b: Block, x: Any, state: Any) -> Any:
    state.setdefault("made", {})[f"layer {b.index}"] = b.hidden(x)
    return x + sum(state["made"].values())


# ------------------------------------------------------------------------------------------------ writes


@block
def a_cache_by_index(b: Block, x: Any, state: Any) -> Any:
    state["caches"][b.index].add_(b.hidden(x).mean())
    return x + b.hidden(x) + state["caches"][b.index].sum()


@block
def a_cache_that_is_filled_alone(b: Block, x: Any, state: Any) -> Any:
    state["caches"][b.index].copy_(x.mean() + b.buf[:3])
    return x


@block
def a_cache_shared_by_two(b: Block, x: Any, state: Any) -> Any:
    state["caches"][b.index // 2].mul_(2)
    return x + b.hidden(x) * state["caches"][b.index // 2].sum()


@block
def a_buffer(b: Block, x: Any, state: Any) -> Any:
    b.buf.add_(b.hidden(x).mean())
    return x + b.hidden(x) * b.buf


@block
def a_write_into_a_view(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    h[:, 1:].mul_(2 + b.index)
    return x + h


@block
def the_same_write_into_a_view(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    h[:, 1:].mul_(2)
    return x + h


@block
def a_write_into_what_reshape_returns(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    written = h.clone() if b.index == 2 else h
    written.reshape(-1, WIDTH).add_(1)
    return x + h


@block
def a_write_through_reshape_of_an_input(b: Block, x: Any, state: Any) -> Any:
    x.reshape(-1, WIDTH).mul_(0.5)
    return x + b.hidden(x)


@block
def a_write_by_index(b: Block, x: Any, state: Any) -> Any:
    x = x.clone()
    x[:, b.index % 2] = b.hidden(x)[:, 0]
    return x


@block
def a_write_into_the_input(b: Block, x: Any, state: Any) -> Any:
    x += b.hidden(x)
    return x


@block
def a_write_after_a_view_was_kept(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    kept = h[:, :1]
    if b.index % 2:
        h.add_(1)
    return x + h + kept


@block
def a_write_into_what_an_earlier_one_returned(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    if "kept" in state:
        state["kept"].mul_(2)
    state["kept"] = h
    return x + h


@block
def a_change_of_sizes_in_place(b: Block, x: Any, state: Any) -> Any:
    h = b.hidden(x)
    if b.index == 2:
        h.unsqueeze_(0)
    return x + h.reshape(x.shape)


# ------------------------------------------------------------------------------------------------ modes


@block
def without_gradients(b: Block, x: Any, state: Any) -> Any:
    with torch.no_grad():
        g = b.hidden(x) * 2
    return x + g


@block
def with_gradients_in_some(b: Block, x: Any, state: Any) -> Any:
    with torch.set_grad_enabled(b.index == 2):
        g = b.hidden(x) * 2
    return x + g


@block
def detached(b: Block, x: Any, state: Any) -> Any:
    return x + (b.hidden(x).detach() if b.index % 2 else b.hidden(x))


@block
def autocast_that_is_off(b: Block, x: Any, state: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        g = b.hidden(x) * 2
    return x + g


@block
def autocast_in_some(b: Block, x: Any, state: Any) -> Any:
    if b.index != 2:
        return x + b.hidden(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x + b.lin2(b.hidden(x)).float()


@block
def a_block_in_inference_mode(b: Block, x: Any, state: Any) -> Any:
    with torch.inference_mode(b.index == 1):
        g = b.hidden(x) * 2
    return x + g


# ------------------------------------------------------------------------------------------------ data and control flow


@block
def rows_that_data_selects(b: Block, x: Any, state: Any) -> Any:
    rows = b.hidden(x).flatten(0, 1)
    keep = (rows.sum(-1) > 0).nonzero().squeeze(1)
    return x + torch.zeros_like(rows).index_add(0, keep, rows[keep]).view(x.shape)


@block
def rows_in_some(b: Block, x: Any, state: Any) -> Any:
    rows = b.hidden(x).flatten(0, 1)
    return x + rows_that_data_selects(b, x, state) if b.index == 2 else x + rows.view(x.shape)


@block
def a_condition(b: Block, x: Any, state: Any) -> Any:
    return x + torch.cond(x.sum() > 0, lambda h: h + 1, lambda h: h * 2, (b.hidden(x),))


@block
def another_condition(b: Block, x: Any, state: Any) -> Any:
    index = float(b.index)
    return x + torch.cond(x.sum() > 0, lambda h: h + index, lambda h: h * 2, (b.hidden(x),))


@block
def an_exception_that_the_model_catches(b: Block, x: Any, state: Any) -> Any:
    try:
        return _raising(b, x)
    except ValueError:
        return x - 1


def _raising(b: Block, x: Any) -> Any:
    h = b.hidden(x)
    if b.index == 3:
        raise ValueError("not this one")
    return x + h


@block
def a_loop_of_another_length(b: Block, x: Any, state: Any) -> Any:
    for _ in range(1 + b.index % 3):
        x = x + b.hidden(x)
    return x


# ------------------------------------------------------------------------------------------------ modules


@block
def a_count_of_calls(b: Block, x: Any, state: Any) -> Any:
    b.calls += b.index
    calls, b.calls = b.calls, 0
    return x + b.hidden(x) * calls


@block
def a_layer_norm(b: Block, x: Any, state: Any) -> Any:
    return x + b.norm(b.hidden(x))


@block
def a_batch_norm(b: Block, x: Any, state: Any) -> Any:
    return x + b.batch_norm(b.hidden(x).transpose(1, 2)).transpose(1, 2)


@block
def attention_with_a_causal_mask_in_some(b: Block, x: Any, state: Any) -> Any:
    q, k = b.lin(x).unsqueeze(1), b.lin2(x).unsqueeze(1)
    attention = nn.functional.scaled_dot_product_attention(q, k, k, is_causal=b.index % 2 == 0)
    return x + attention.squeeze(1)


def _changed(name: str, forward: Callable[..., torch.Tensor], change: Callable[[nn.ModuleList], None]) -> None:
    BLOCKS[name] = Case(forward, change)


def _tie(layers: nn.ModuleList) -> None:
    layers[3].lin.weight = layers[1].lin.weight


def _tie_inside(layers: nn.ModuleList) -> None:
    layers[3].lin2 = layers[3].lin


def _hook(layers: nn.ModuleList) -> None:
    layers[3].register_forward_hook(lambda module, args, output: output * 2)
    layers[4].register_forward_pre_hook(lambda module, args: (args[0] + 1, args[1]))


def _hook_inside(layers: nn.ModuleList) -> None:
    layers[2].lin.register_forward_hook(lambda module, args, output: output * 2)


def _train(layers: nn.ModuleList) -> None:
    layers[2].batch_norm.train()


def _drop(layers: nn.ModuleList) -> None:
    layers[2].drop.p = 0.0


def _one_for_two(layers: nn.ModuleList) -> None:
    layers[3] = layers[1]


def _another_forward(layers: nn.ModuleList) -> None:
    layers[2].lin.forward = layers[2].lin2.forward  # type: ignore[method-assign]


def _another_epsilon(layers: nn.ModuleList) -> None:
    layers[2].norm.eps = 0.5


_changed("weights_of_two_blocks", plain, _tie)
_changed("weights_inside_a_block", a_collected_value, _tie_inside)
_changed("hooks", plain, _hook)
_changed("hooks_inside", plain, _hook_inside)
_changed("training_of_one", a_batch_norm, _train)
_changed("dropout_that_is_off", lambda b, x, state: x + b.drop(b.hidden(x)), _drop)
_changed("one_block_twice", another_scale, _one_for_two)
_changed("a_forward_of_one", plain, _another_forward)
_changed("an_epsilon_of_one", a_layer_norm, _another_epsilon)


def inputs(batch: int, sequence: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(batch * 100 + sequence)
    caches = [torch.randn(3, generator=generator) for _ in range(DEPTH)]
    return torch.randn(batch, sequence, WIDTH, generator=generator), caches
