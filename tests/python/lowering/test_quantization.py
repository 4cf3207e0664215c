"""What quantized programs hold, and the rounding of training, beside eager."""

from __future__ import annotations

from collections.abc import Callable
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
