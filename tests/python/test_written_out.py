"""What people write out by hand, as modules: what becomes of it, and that files answer as the module at other sizes."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from exportguard import to_onnx


class LayerNormOfChannels(nn.Module):
    """As ConvNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 6))
        self.bias = nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * ((x - mean) / torch.sqrt(variance + 1e-6)) + self.bias[:, None, None]


class LayerNormByVariance(LayerNormOfChannels):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        scaled = (x - mean) * torch.rsqrt(variance + 1e-6) * self.weight.view(1, -1, 1, 1)
        return scaled + self.bias.view(1, -1, 1, 1)


class Normalized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x, dim=1)


class WithSinks(nn.Module):
    """Heads shared by two, and a sink for each of the queries'; `is_first`: its column stands before the scores."""

    def __init__(self, is_first: bool = False, shifts: bool = True) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        self.is_first, self.shifts = is_first, shifts

    def column(self, q: torch.Tensor) -> torch.Tensor:
        return self.sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = q @ k.transpose(2, 3) * 0.5 + mask
        both = [self.column(q), scores] if self.is_first else [scores, self.column(q)]
        scores = torch.cat(both, -1)
        if self.shifts:
            scores = scores - scores.max(dim=-1, keepdim=True).values
        shares = scores.softmax(-1)
        return (shares[..., 1:] if self.is_first else shares[..., :-1]) @ v


class WithSinksOfTokens(WithSinks):
    """A sink for each query, as Inkling has it."""

    def column(self, q: torch.Tensor) -> torch.Tensor:
        return (q * self.sinks.reshape(1, -1, 1, 1)).sum(-1, keepdim=True)


class LinearThenBatchNorm(nn.Module):
    """As LeViT has it."""

    def __init__(self, has_bias: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(5, 7, bias=has_bias), nn.BatchNorm1d(7)
        self.norm.running_mean, self.norm.running_var = torch.linspace(-1, 1, 7), torch.linspace(0.5, 2, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        result: torch.Tensor = self.norm(y.flatten(0, 1)).reshape_as(y)
        return result


def picture(*sizes: int) -> tuple[torch.Tensor, ...]:
    batch, height, width = sizes
    return (torch.randn(batch, 6, height, width),)


def attention(*sizes: int) -> tuple[torch.Tensor, ...]:
    """The first query sees no key."""
    batch, queries, keys = sizes
    mask = torch.zeros(batch, 1, queries, keys).masked_fill(torch.rand(batch, 1, queries, keys) < 0.3, -torch.inf)
    mask[:, :, 0] = -torch.inf
    return torch.randn(batch, 4, queries, 8), torch.randn(batch, 2, keys, 8), torch.randn(batch, 2, keys, 8), mask


def rows(*sizes: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(sizes[0], sizes[1], 5),)


PICTURE = ({0: "batch", 2: "height", 3: "width"},)
ATTENTION = (
    {0: "batch", 2: "queries"},
    {0: "batch", 2: "keys"},
    {0: "batch", 2: "keys"},
    {0: "batch", 2: "queries", 3: "keys"},
)
ROWS = ({0: "batch", 1: "seq"},)
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[torch.Tensor, ...]], Any, dict[str, int]]] = {
    "layer norm of channels": (LayerNormOfChannels, picture, PICTURE, {"LayerNormalization": 1, "Add": 0, "Mul": 0}),
    "layer norm by variance": (LayerNormByVariance, picture, PICTURE, {"LayerNormalization": 1, "Add": 0, "Mul": 0}),
    "normalize": (Normalized, picture, PICTURE, {"Expand": 0}),
    "sinks": (WithSinks, attention, ATTENTION, {"Attention": 1, "Softmax": 0, "ReduceMax": 0}),
    "sinks first": (lambda: WithSinks(is_first=True), attention, ATTENTION, {"Attention": 1, "Softmax": 0}),
    "sinks as they are": (lambda: WithSinks(shifts=False), attention, ATTENTION, {"Attention": 1, "Softmax": 0}),
    "sinks of tokens": (WithSinksOfTokens, attention, ATTENTION, {"Attention": 1, "Softmax": 0}),
    "batch norm": (lambda: LinearThenBatchNorm(True), rows, ROWS, {"BatchNormalization": 0, "Reshape": 0}),
    "batch norm alone": (lambda: LinearThenBatchNorm(False), rows, ROWS, {"BatchNormalization": 0, "Reshape": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_becomes_an_operator_with_the_answers_of_the_module(name: str) -> None:
    make, draw, shapes, wanted = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    written = to_onnx(module, draw(2, 3, 5), dynamic_shapes=shapes).to_bytes()
    found = collections.Counter(node.op_type for node in onnx.load_from_string(written).graph.node)
    assert {op: found[op] for op in wanted} == wanted
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    for sizes in ((2, 3, 5), (1, 1, 1), (3, 7, 4)):
        inputs = draw(*sizes)
        names = [value.name for value in session.get_inputs()]
        got = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})[0]
        with torch.no_grad():
            np.testing.assert_allclose(got, module(*inputs).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sink", [torch.inf, -torch.inf, torch.nan])
def test_a_sink_that_is_no_number_gives_what_torch_gives(sink: float) -> None:
    torch.manual_seed(0)
    module = WithSinks().eval()
    with torch.no_grad():
        module.sinks[1] = sink
    inputs = attention(2, 3, 5)
    session = onnxruntime.InferenceSession(
        to_onnx(module, inputs, dynamic_shapes=ATTENTION).to_bytes(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    got = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})[0]
    with torch.no_grad():
        np.testing.assert_allclose(got, module(*inputs).numpy(), rtol=1e-4, atol=1e-5)


class WithSinksOfShifted(WithSinks):
    """The largest score is subtracted before the sinks stand beside the scores, which then are no longer small."""

    def __init__(self, low: float) -> None:
        super().__init__()
        self.low = low

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(2, 3) * 0.5 + (1 - mask[:, None, None]) * self.low
        shifted = scores - scores.amax(-1, keepdim=True)
        column = self.sinks.reshape(1, -1, 1, 1).expand(len(q), -1, q.shape[2], 1)
        return torch.cat([shifted, column], -1).softmax(-1)[..., :-1] @ v


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("target", [True, "onnxruntime", "onnxruntime-genai"])
def test_what_is_computed_from_the_scores_is_no_mask(low: float, target: Any) -> None:
    """A sum of a mask of -1e9 and its own largest is 0, and what is lost beside the mask would be there again."""
    drawn = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 8, generator=drawn) for _ in range(3))
    mask = torch.ones(2, 5)
    model = WithSinksOfShifted(low).eval()
    converted = to_onnx(model, (q, k, v, mask), optimize=target)
    mask[0] = 0
    (got,) = converted.run({"q": q, "k": k, "v": v, "mask": mask}).values()
    torch.testing.assert_close(torch.as_tensor(got), model(q, k, v, mask), rtol=1e-5, atol=1e-5)
