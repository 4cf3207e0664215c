"""Programs behind `run_decompositions`, and operators whose decomposition was given: they are what they were before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from exportguard import ExportGuardError, to_onnx

#: What writes into a tensor: functional programs have `copy` there.
WRITES: Mapping[str, Callable[[Tensor, Tensor], object]] = {
    "a slice": lambda y, x: y.__setitem__((slice(None), slice(1, None)), x[:, :-1]),
    "a row of one number": lambda y, x: y[0].fill_(2.0),
    "a column": lambda y, x: y.__setitem__((slice(None), 0), x[:, 1] * 2),
    "all of a row": lambda y, x: y[1].copy_(x[0]),
    "another dtype": lambda y, x: y.copy_(torch.ones(x.shape[1], dtype=torch.int64)),
    "a step": lambda y, x: y.__setitem__((slice(None), slice(None, None, 2)), x[:, ::2].flip(0)),
    "a transposed view": lambda y, x: y.t()[1:].copy_(x.t()[:-1]),
    "parts": lambda y, x: [part.copy_(x[:, :1]) for part in y.split(1, 1)],
}


class Writes(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        y = x * 3
        WRITES[self.name](y, x)
        return y + x


@pytest.mark.parametrize("name", WRITES)
def test_writes_of_functional_programs(name: str) -> None:
    model = Writes(name).eval()
    program = torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("rows", min=2)},))
    onnx = to_onnx(program.run_decompositions())
    for rows in (2, 3, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(onnx.run({"x": x})["output_0"], model(x))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Bilinear(4, 3, 5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        made: Tensor = self.product(x, y)
        return made


@pytest.mark.parametrize("shape", [(), (6,), (2, 6)])
def test_products_of_two_inputs(shape: tuple[int, ...]) -> None:
    model = TwoInputs().eval()
    x, y = torch.randn(*shape, 4), torch.randn(*shape, 3)
    onnx = to_onnx(torch.export.export(model, (x, y)).run_decompositions())
    torch.testing.assert_close(onnx.run({"x": x, "y": y})["output_0"], model(x, y), rtol=1e-4, atol=1e-5)


@torch.library.custom_op("taken_apart::shift", mutates_args=())
def _shift(x: Tensor, n: int) -> Tensor:
    return x + n


@_shift.register_fake
def _(x: Tensor, n: int) -> Tensor:
    return torch.empty_like(x)


class Shifted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.taken_apart.shift(x, x.shape[0])
        return y.view(5, 3)  # the axis is a number behind the call


def test_a_size_that_becomes_a_number_behind_an_operator() -> None:
    x = torch.randn(5, 3)
    apart: Any = {"taken_apart.shift.default": lambda x, n: x + n}
    onnx = to_onnx(Shifted().eval(), (x,), dynamic_shapes=({0: Dim.AUTO},), decompositions=apart)
    torch.testing.assert_close(onnx.run({"x": x})["output_0"], x + 5)


@torch.library.custom_op("taken_apart::doubled", mutates_args=("y",))
def _doubled(y: Tensor) -> None:
    y.mul_(2)


@_doubled.register_fake
def _(y: Tensor) -> None:
    return None


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        torch.ops.taken_apart.doubled(y)
        return y


def test_a_decomposition_of_what_returns_nothing_is_refused() -> None:
    apart: Any = {"taken_apart.doubled.default": lambda y: y.mul_(2)}
    with pytest.raises(ExportGuardError, match=r"doubled\.default returns nothing.*Dispatcher"):
        to_onnx(Doubles().eval(), (torch.ones(2),), decompositions=apart)


def test_a_weight_that_is_none_is_told() -> None:
    program = torch.export.export(nn.Linear(4, 4), (torch.randn(2, 4),))
    program.state_dict["weight"] = None
    with pytest.raises(ExportGuardError, match="NoneType for PARAMETER 'weight'"):
        to_onnx(program)


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x.flip(2))


def test_heads_of_any_size() -> None:
    model = Attends().eval()
    onnx = to_onnx(model, (torch.randn(2, 3, 5, 8),), dynamic_shapes=({2: "length", 3: "head"},))
    for length, head in ((5, 8), (1, 3), (7, 16)):
        x = torch.randn(2, 3, length, head)
        torch.testing.assert_close(onnx.run({"x": x})["output_0"], model(x), rtol=1e-4, atol=1e-5)
