"""Nodes that onnxruntime makes one of, and then gives other numbers or does not load the file."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnxruntime as ort
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch.nn import functional

from called import Called
from exportguard import to_onnx

Model = Callable[[torch.Tensor], object]

_WEIGHT = torch.randn(4, 4)
_fake = torch.fake_quantize_per_tensor_affine


def _is_right(model: Model, x: torch.Tensor, *, exactly: bool = False) -> None:
    onnx = to_onnx(Called(model).eval(), (x,), dynamic_shapes=({0: "rows"},))
    for rows in (x.shape[0], 2, 7):
        given = torch.randn(rows, *x.shape[1:], dtype=x.dtype) * 2
        expected = torch.utils._pytree.tree_leaves(model(given))
        found = onnx.run({"x": given}).values()
        for one, other in zip(found, expected, strict=True):
            # Sums of products cancel: what is left has the rounding of the largest of them.
            largest = float(other.abs().max()) if other.dtype == torch.float32 else 0.0
            bounds = {"rtol": 0, "atol": 1e-6} if exactly else {"rtol": 1e-5, "atol": 1e-5 * largest}
            torch.testing.assert_close(one, other, **(bounds if exactly or largest else {}))


class _Scales:
    """Random chains of numbers that multiply and divide, in front of products of matrices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._steps = [self._step(count) for count in range(1, 7)]

    def _step(self, count: int) -> tuple[str, int, int, float]:
        kind = self._random.choice(["times", "over", "times a buffer", "product", "product with itself", "turned"])
        return kind, self._random.randrange(count), self._random.randrange(count), self._random.choice([0.5, 3.0, 1.7])

    def __call__(self, x: torch.Tensor) -> list[torch.Tensor]:
        values = [x.unsqueeze(0) @ _WEIGHT]
        for kind, one, other, number in self._steps:
            value = values[one]
            made = {
                "times": lambda v=value, n=number: v * n,
                "over": lambda v=value, n=number: v / n,
                "times a buffer": lambda v=value, n=number: torch.tensor([n]) * v,
                "product": lambda v=value: v @ _WEIGHT.to(v.dtype) if v.shape[-1] == 4 else v,
                "product with itself": lambda v=value, o=other: (
                    v @ values[o].transpose(-1, -2) @ v if values[o].shape == v.shape else v
                ),
                "turned": lambda v=value, n=number: (v.transpose(-1, -2) * n).transpose(-1, -2),
            }
            values.append(made[kind]())
        return values[1:]


@pytest.mark.parametrize("seed", range(24))
def test_numbers_before_products(seed: int) -> None:
    _is_right(_Scales(seed), torch.randn(5, 4))


def test_a_scale_of_a_scale_and_the_product_of_both() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        part = x / 3.0
        return part @ _WEIGHT, (part / 2.0) @ _WEIGHT

    _is_right(model, torch.randn(5, 4))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_one_over_a_tensor_of_fewer_axes(dtype: torch.dtype, rank: int) -> None:
    one = torch.ones([1] * rank, dtype=dtype)
    _is_right(lambda x: (one / x * x.flip(0), x * (one / x.abs()), x.sin() * (one / (x + 9))), torch.rand(5).to(dtype))


CLIPS: dict[str, Model] = {
    "relu6": lambda x: functional.relu6(functional.relu(x)),
    "clamp": lambda x: functional.relu(x).clamp(-2, 3),
    "hardtanh": lambda x: functional.hardtanh(x.relu()),
}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_bounds_behind_relu(dtype: torch.dtype, clip: Model) -> None:
    _is_right(clip, torch.randn(5, 4, dtype=dtype))


@pytest.mark.parametrize("second", [(0.25, 0), (0.1, 3), (0.1, 0), (1.5, -7)])
@pytest.mark.parametrize("first", [(0.1, 0), (0.01, 5)])
def test_two_roundings_in_a_row(first: tuple[float, int], second: tuple[float, int]) -> None:
    _is_right(lambda x: _fake(_fake(x, *first, -128, 127), *second, -128, 127), torch.randn(5, 4), exactly=True)


MOVES: dict[str, Model] = {
    "pool": lambda x: functional.max_pool1d(x, 2),
    "transposed": lambda x: x.transpose(0, 1) @ torch.ones(x.shape[0], 3),
    "resized": lambda x: functional.interpolate(x[None], scale_factor=2),
    "reshaped": lambda x: x.reshape(-1, 2).relu(),
    "sliced": lambda x: x[:, 1:] * 1.5,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("limits", [(-128, 127), (0, 255), (-127, 127), (-8, 7), (0, 15)], ids=str)
def test_bytes_before_what_moves_them(limits: tuple[int, int], move: Model) -> None:
    _is_right(lambda x: move(_fake(x, 0.1, 0, *limits)), torch.randn(6, 4))


LEVELS = [level for name, level in vars(ort.GraphOptimizationLevel).items() if name.startswith("ORT_")]


@pytest.mark.parametrize("opset", [18, 21, 25])
def test_a_narrow_range_at_every_level_of_optimization(opset: int) -> None:
    scales, zeros = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, -1, 2], dtype=torch.int32)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        by_channel = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)
        return _fake(x, 0.1, 3, -8, 7)[:, 1:], by_channel[:, 1:]

    x = torch.randn(5, 4) * 3
    file = to_onnx(Called(model).eval(), (x,), dynamic_shapes=({0: "rows"},), opset=opset).to_bytes()
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        for expected, found in zip(model(x), session.run(None, {"x": x.numpy()}), strict=True):
            torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("zero_point", [0, 3])
def test_bytes_of_an_input_before_what_moves_them(zero_point: int) -> None:
    limits = (0.1, zero_point, -128, 127, torch.int8)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = torch.ops.quantized_decomposed.dequantize_per_tensor(x, *limits)
        return whole[:, 1:], whole.reshape(-1, 2)

    bytes_ = torch.arange(-128, 128, dtype=torch.int8).reshape(-1, 4)
    onnx = to_onnx(Called(model).eval(), (bytes_[:5],), dynamic_shapes=({0: "rows"},))
    for found, expected in zip(onnx.run({"x": bytes_}).values(), model(bytes_), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_sum_of_products_of_several_dtypes() -> None:
    table = torch.tensor([[0.5], [-1.5]])
    onnx = to_onnx(
        Called(lambda x: torch.einsum("i...,ji->j...", x, table)).eval(),
        (torch.ones(1, 3, dtype=torch.int64),),
        dynamic_shapes=({1: "columns"},),
    )
    x = torch.arange(5)[None]
    torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), torch.einsum("i...,ji->j...", x, table))


def test_a_negative_zero_is_filled_in() -> None:
    model = Called(lambda x: 1 / functional.pad(x, [1, 1], value=-0.0)).eval()
    onnx = to_onnx(model, (torch.ones(3),), dynamic_shapes=({0: "rows"},))
    torch.testing.assert_close(next(iter(onnx.run({"x": torch.ones(2)}).values())), model(torch.ones(2)))
