"""Layers as different people write them become the same operator, and their answers stay.

A row of `SPELLINGS` is a module, the operator that it becomes, one that is gone, and sizes beside the traced ones. Each
is compared with eager mode, with numbers that are not finite as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import exportguard

WIDTH, HEADS, SIZE = 16, 4, 4
INFINITY = float("inf")


class Spelling(NamedTuple):
    """`forward` is a method; what it names of `self` is in `Layer`."""

    forward: Callable[..., Tensor]
    becomes: str
    gone: str = ""
    shape: tuple[int, ...] = (2, 5, WIDTH)
    others: tuple[tuple[int, ...], ...] = ((1, 1, WIDTH), (3, 7, WIDTH))
    axes: dict[int, str] = {0: "batch", 1: "sequence"}  # noqa: RUF012


class Layer(nn.Module):
    """Weights and tables for all of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.one_k, self.one_v = nn.Linear(WIDTH, SIZE), nn.Linear(WIDTH, SIZE)
        self.weight, self.bias = nn.Parameter(torch.rand(WIDTH) + 0.5), nn.Parameter(torch.randn(WIDTH))
        self.temperature = nn.Parameter(torch.rand(HEADS, 1, 1) + 0.5)
        self.conv, self.deconv = nn.Conv1d(WIDTH, 6, 1), nn.ConvTranspose1d(WIDTH, 6, 2, groups=2)
        self.hidden, self.norm, self.norm_six = nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.BatchNorm1d(6)
        for norm in (self.norm, self.norm_six):
            norm.running_mean = torch.randn(6)
            norm.running_var = torch.rand(6) + 0.5
        self.register_buffer("triangle", torch.tril(torch.ones(1, 1, 8, 8)))
        self.register_buffer("slopes", torch.tensor([0.5, 0.25, 0.125, 0.0625]).view(1, HEADS, 1, 1))
        angles = torch.outer(torch.arange(8.0), 100 ** -(torch.arange(0, SIZE, 2) / SIZE))
        for name, table in {"half": angles, "full": torch.cat([angles, angles], -1)}.items():
            self.register_buffer(f"{name}_cos", table.cos())
            self.register_buffer(f"{name}_sin", table.sin())
        self.register_buffer("twice_cos", angles.cos().repeat_interleave(2, -1))
        self.register_buffer("twice_sin", angles.sin().repeat_interleave(2, -1))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)

    def scores(self, x: Tensor) -> Tensor:
        return self.heads(self.q(x)) @ self.heads(self.k(x)).transpose(2, 3) / math.sqrt(SIZE)

    def attended(self, scores: Tensor, x: Tensor) -> Tensor:
        return self.o((scores.softmax(-1) @ self.heads(self.v(x))).transpose(1, 2).flatten(2))


# ------------------------------------------------------------------------------------------------ attention


def causal_minus_infinity(self: Layer, x: Tensor) -> Tensor:
    n = x.shape[1]
    return self.attended(self.scores(x).masked_fill(self.triangle[:, :, :n, :n] == 0, -INFINITY), x)


def triangle_added(self: Layer, x: Tensor) -> Tensor:
    n = x.shape[1]
    return self.attended(self.scores(x) + torch.full((n, n), -INFINITY).triu(1), x)


def every_key_hidden(self: Layer, x: Tensor) -> Tensor:
    hidden = (x.sum(-1) > 0)[:, None, None, :]
    return self.attended(self.scores(x).masked_fill(hidden, -INFINITY), x)


def hidden_twice(self: Layer, x: Tensor) -> Tensor:
    at = torch.arange(x.shape[1])
    scores = self.scores(x).masked_fill(at[None] > at[:, None], -INFINITY)
    return self.attended(scores.masked_fill((x.sum(-1) > 0)[:, None, None, :], -INFINITY), x)


def slopes_and_minus_infinity(self: Layer, x: Tensor) -> Tensor:
    at = torch.arange(x.shape[1])
    scores = self.scores(x) + self.slopes * (at[None] - at[:, None]).to(x.dtype).clamp(-8, 0)
    return self.attended(scores.masked_fill((x.sum(-1) > 0)[:, None, None, :], -INFINITY), x)


def subtracted(self: Layer, x: Tensor) -> Tensor:
    hidden = (x.sum(-1) > 0).to(x.dtype)[:, None, None, :]
    return self.attended(self.scores(x) - 1e4 * hidden, x)


def single_head(self: Layer, x: Tensor) -> Tensor:
    scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(WIDTH)
    at = torch.arange(x.shape[1])
    return self.o(scores.masked_fill(at[None] > at[:, None], -INFINITY).softmax(-1) @ self.v(x))


def heads_in_the_batch(self: Layer, x: Tensor) -> Tensor:
    b, n, _ = x.shape
    q, k, v = (
        layer(x.transpose(0, 1)).reshape(n, b * HEADS, SIZE).transpose(0, 1) for layer in (self.q, self.k, self.v)
    )
    weights = torch.bmm(q * SIZE**-0.5, k.transpose(1, 2)).softmax(-1)
    return self.o(torch.bmm(weights, v).transpose(0, 1).reshape(n, b, WIDTH)).transpose(0, 1)


def temperature_of_heads(self: Layer, x: Tensor) -> Tensor:
    return self.attended(self.scores(x) * self.temperature.exp(), x)


def one_key_head(self: Layer, x: Tensor) -> Tensor:
    keys, values = self.one_k(x).unsqueeze(1), self.one_v(x).unsqueeze(1)
    weights = (self.heads(self.q(x)) @ keys.transpose(2, 3) / math.sqrt(SIZE)).softmax(-1)
    return self.o((weights @ values).transpose(1, 2).flatten(2))


# ------------------------------------------------------------------------------------------------ rotations


def turned_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def turned_pairs(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotary_tables(self: Layer, x: Tensor) -> Tensor:
    q, n = self.heads(self.q(x)), x.shape[1]
    return q * self.full_cos[:n] + turned_halves(q) * self.full_sin[:n]


def rotary_looked_up(self: Layer, x: Tensor) -> Tensor:
    q = self.heads(self.q(x))
    at = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    return q * self.full_cos[at].unsqueeze(1) + turned_halves(q) * self.full_sin[at].unsqueeze(1)


def rotary_neighbours(self: Layer, x: Tensor) -> Tensor:
    q, n = self.heads(self.q(x)), x.shape[1]
    return q * self.twice_cos[:n] + turned_pairs(q) * self.twice_sin[:n]


def rotary_of_halves(self: Layer, x: Tensor) -> Tensor:
    (a, b), n = self.heads(self.q(x)).chunk(2, -1), x.shape[1]
    cos, sin = self.half_cos[:n], self.half_sin[:n]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rotary_of_halves_behind(self: Layer, x: Tensor) -> Tensor:
    a, b = self.q(x).view(*x.shape[:2], HEADS, SIZE).split(SIZE // 2, -1)
    cos, sin = (table[: x.shape[1], None, :] for table in (self.half_cos, self.half_sin))
    return torch.cat([cos * a - sin * b, sin * a + cos * b], -1)


def rotary_of_slices(self: Layer, x: Tensor) -> Tensor:
    q, n = self.heads(self.q(x)), x.shape[1]
    a, b, cos, sin = q[..., ::2], q[..., 1::2], self.half_cos[:n], self.half_sin[:n]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rotary_of_pairs(self: Layer, x: Tensor) -> Tensor:
    q, n = self.heads(self.q(x)), x.shape[1]
    a, b = q.reshape(*q.shape[:-1], -1, 2).unbind(-1)
    cos, sin = self.half_cos[:n], self.half_sin[:n]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(q.shape)


def rotary_complex(self: Layer, x: Tensor) -> Tensor:
    pairs = self.q(x).reshape(*x.shape[:2], HEADS, -1, 2)
    turned = torch.view_as_complex(pairs) * self.turns[: x.shape[1]][None, :, None, :]
    return torch.view_as_real(turned).flatten(2)


def other_tables(self: Layer, x: Tensor) -> Tensor:
    q, n = self.heads(self.q(x)), x.shape[1]
    cos = torch.cat([self.half_cos[:n], self.half_sin[:n]], -1)
    return q * cos + turned_halves(q) * self.full_sin[:n]


def turned_backwards(self: Layer, x: Tensor) -> Tensor:
    (a, b), n = self.heads(self.q(x)).chunk(2, -1), x.shape[1]
    cos, sin = self.half_cos[:n], self.half_sin[:n]
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


# ------------------------------------------------------------------------------------------------ norms and the rest


def weight_first(self: Layer, x: Tensor) -> Tensor:
    return x * (torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight)


def sum_of_squares(self: Layer, x: Tensor) -> Tensor:
    return self.weight * (x * torch.rsqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-6))


def mean_put_back(self: Layer, x: Tensor) -> Tensor:
    return self.weight * (x / torch.sqrt(x.square().mean(-1).unsqueeze(-1) + 1e-6))


def power_of_minus_half(self: Layer, x: Tensor) -> Tensor:
    return self.weight * (x * (x.square().mean(-1, keepdim=True) + 1e-6) ** -0.5)


def layer_norm_weight_first(self: Layer, x: Tensor) -> Tensor:
    y = x - x.mean(-1).unsqueeze(-1)
    return y * (self.weight * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5)) + self.bias


def other_number_of_squares(self: Layer, x: Tensor) -> Tensor:
    return self.weight * (x * torch.rsqrt((x * x).sum(-1, keepdim=True) / (x.shape[-1] - 1) + 1e-6))


def gelu_with_half_inside(self: Layer, x: Tensor) -> Tensor:
    return x * (0.5 + 0.5 * torch.erf(x / math.sqrt(2.0)))


def unlike_halves(self: Layer, x: Tensor) -> Tensor:
    return x * (0.5 + 0.25 * torch.erf(x / math.sqrt(2.0)))


def frozen_batch_norm(self: Layer, x: Tensor) -> Tensor:
    mean, deviation = self.norm.running_mean[:, None], (self.norm.running_var + 1e-5).sqrt()[:, None]
    return (self.conv(x) - mean) / deviation * self.norm.weight[:, None] + 0.5


def number_minus_convolution(self: Layer, x: Tensor) -> Tensor:
    return 1.5 - self.conv(x)


def grouped_transposed(self: Layer, x: Tensor) -> Tensor:
    return self.norm(self.deconv(x))


def linear_and_batch_norm(self: Layer, x: Tensor) -> Tensor:
    return functional.relu(self.norm_six(self.hidden(x)))


PICTURE: dict[str, object] = {
    "shape": (2, WIDTH, 5),
    "others": ((1, WIDTH, 1), (3, WIDTH, 4)),
    "axes": {0: "batch", 2: "n"},
}
ROWS: dict[str, object] = {"shape": (4, WIDTH), "others": ((1, WIDTH),), "axes": {0: "batch"}}
SPELLINGS = [
    *(
        Spelling(forward, "Attention", "Softmax")
        for forward in (
            causal_minus_infinity,
            triangle_added,
            every_key_hidden,
            hidden_twice,
            slopes_and_minus_infinity,
            subtracted,
            single_head,
            heads_in_the_batch,
            temperature_of_heads,
            one_key_head,
        )
    ),
    *(
        Spelling(forward, "RotaryEmbedding", "Mul")
        for forward in (
            rotary_tables,
            rotary_looked_up,
            rotary_neighbours,
            rotary_of_halves,
            rotary_of_halves_behind,
            rotary_of_slices,
            rotary_of_pairs,
            rotary_complex,
        )
    ),
    *(
        Spelling(forward, "RMSNormalization", "Mul")
        for forward in (weight_first, sum_of_squares, mean_put_back, power_of_minus_half)
    ),
    Spelling(layer_norm_weight_first, "LayerNormalization", "Mul"),
    Spelling(gelu_with_half_inside, "Gelu", "Erf"),
    Spelling(other_tables, "Mul", "RotaryEmbedding"),
    Spelling(turned_backwards, "Mul", "RotaryEmbedding"),
    Spelling(other_number_of_squares, "Reciprocal", "RMSNormalization"),
    Spelling(unlike_halves, "Erf", "Gelu"),
    Spelling(frozen_batch_norm, "Conv", "Div", **PICTURE),
    Spelling(number_minus_convolution, "Conv", "Sub", **PICTURE),
    Spelling(grouped_transposed, "ConvTranspose", "BatchNormalization", **PICTURE),
    Spelling(linear_and_batch_norm, "Gemm", "BatchNormalization", **ROWS),
]


def layer_of(spelling: Spelling) -> Layer:
    return type("Spelled", (Layer,), {"forward": spelling.forward})().eval()


def inputs_of(spelling: Spelling) -> list[Tensor]:
    torch.manual_seed(1)
    inputs = [torch.randn(shape) for shape in (spelling.shape, *spelling.others)]
    inputs.append(torch.ones(spelling.shape))
    for number in (math.nan, INFINITY, -INFINITY, 1e10):
        inputs.append(torch.randn(spelling.shape))
        inputs[-1].view(-1)[inputs[-1].numel() // 2] = number
    return inputs


@pytest.mark.parametrize("spelling", SPELLINGS, ids=[spelling.forward.__name__ for spelling in SPELLINGS])
def test_a_spelling_becomes_its_operator_and_keeps_its_answers(spelling: Spelling) -> None:
    layer, inputs = layer_of(spelling), inputs_of(spelling)
    for optimize in (True, "onnxruntime"):
        model = exportguard.to_onnx(layer, (inputs[0],), dynamic_shapes=(spelling.axes,), optimize=optimize)
        if optimize is True:
            text = model.text()
            assert f" {spelling.becomes}(" in text
            assert not spelling.gone or f" {spelling.gone}(" not in text, text
        for x in inputs:
            with torch.no_grad():
                expected = layer(x)
            got = torch.as_tensor(next(iter(model.run({"x": x}).values())))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
