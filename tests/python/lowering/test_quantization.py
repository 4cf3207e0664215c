"""What quantized programs hold, and the rounding of training, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from tensors import floats

if TYPE_CHECKING:
    from conftest import Check

ops = torch.ops.quantized_decomposed
SCALES = torch.tensor([0.1, 0.2, 0.05])
ZEROS = torch.tensor([0, 1, 2])
Function = Callable[[torch.Tensor], torch.Tensor]


def by_tensor(low: int, high: int, dtype: torch.dtype) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        whole = ops.quantize_per_tensor(x, 0.1, 3, low, high, dtype)
        return ops.dequantize_per_tensor(whole, 0.1, 3, low, high, dtype)

    return function


def by_channel(x: torch.Tensor) -> torch.Tensor:
    whole = ops.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8)
    return ops.dequantize_per_channel(whole, SCALES, ZEROS, 1, -128, 127, torch.int8)


def dynamically(x: torch.Tensor) -> torch.Tensor:
    scale, zero = ops.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
    whole = ops.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return ops.dequantize_per_tensor.tensor(whole, scale, zero, -128, 127, torch.int8)


FUNCTIONS: dict[str, Function] = {
    "uint8": by_tensor(0, 255, torch.uint8),
    "int8": by_tensor(-128, 127, torch.int8),
    "narrow int8": by_tensor(-127, 127, torch.int8),
    "int16": by_tensor(-32768, 32767, torch.int16),
    "int32": by_tensor(-(2**31), 2**31 - 1, torch.int32),
    "by channel": by_channel,
    "dynamically": dynamically,
}


@pytest.mark.parametrize("opset", [18, 21, None])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_there_and_back(name: str, opset: int | None, check: Check) -> None:
    check(FUNCTIONS[name], [floats(5, 3) * 8], others=[[floats(7, 3) * 50]], opset=opset)


def test_products_of_bytes_are_summed_exactly(check: Check) -> None:
    def bytes_of(rows: int, columns: int) -> torch.Tensor:
        return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)

    largest = torch.full((17, 40), -128, dtype=torch.int8), torch.full((40, 8), 127, dtype=torch.int8)
    check(torch._int_mm, [bytes_of(17, 40), bytes_of(40, 8)], others=[[bytes_of(33, 40), bytes_of(40, 8)], largest])


# What torchao registers, of which tests need no more than this one.
SCHEMA = (
    "dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype, "
    "Scalar? quant_min=None, Scalar? quant_max=None, ScalarType output_dtype=float) -> Tensor"
)


def by_blocks(
    x: torch.Tensor,
    blocks: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    input_dtype: torch.dtype,
    low: float | None = None,
    high: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    counts = [size // block for size, block in zip(x.shape, blocks, strict=True)]
    apart = [size for count in counts for size in (count, 1)]
    pieces = x.to(torch.int32).reshape([size for pair in zip(counts, blocks, strict=True) for size in pair])
    moved = pieces if zero_point is None else pieces - zero_point.reshape(apart).to(torch.int32)
    return (moved.to(dtype) * scale.reshape(apart)).reshape(x.shape).to(dtype)


@pytest.fixture
def torchao() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("torchao", "FRAGMENT") as library:
        library.define(SCHEMA)
        library.impl("dequantize_affine", by_blocks, "CompositeExplicitAutograd")
        yield library


BLOCKS: dict[str, tuple[list[int], tuple[int, ...], bool]] = {
    "rows": ([1, 12], (6, 1), True),
    "parts of rows": ([1, 4], (6, 3), True),
    "without zero points": ([1, 4], (6, 3), False),
    "the whole": ([6, 12], (), True),
    "columns": ([6, 1], (1, 12), True),
    "squares": ([3, 4], (2, 3), True),
}


@pytest.mark.parametrize("opset", [20, None])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_a_matrix(name: str, opset: int | None, torchao: torch.library.Library, check: Check) -> None:
    blocks, shape, has_zero = BLOCKS[name]
    scale = torch.rand(shape) + 0.1
    zero = torch.randint(-9, 9, shape, dtype=torch.int8) if has_zero else None

    def function(x: torch.Tensor) -> torch.Tensor:
        whole: torch.Tensor = torch.ops.torchao.dequantize_affine(x, blocks, scale, zero, torch.int8, -128, 127)
        return whole

    check(function, [torch.randint(-128, 128, (6, 12), dtype=torch.int8)], opset=opset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_zero_points_of_floats_are_added_before_rounding(dtype: torch.dtype, check: Check) -> None:
    check(
        lambda x, scale, zero: torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -4, 7),
        [2 * floats(3, 4), floats(4).abs() + 0.1, torch.tensor([0.4, 1, 0.5, -1.2]).to(dtype)],
    )
