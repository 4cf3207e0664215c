from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
BINARY = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max_other": torch.max,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamp_min_tensor": lambda x, y: torch.clamp(x, min=y),
    "clamp_tensors": lambda x, y: torch.clamp(x, y, y + 1),
}
CLAMPS = {
    "both": lambda x: x.clamp(-1, 2),
    "low": lambda x: x.clamp(min=1),
    "high": lambda x: x.clamp(max=1),
    "clamp_min": lambda x: torch.clamp_min(x, 1),
    "clamp_max": lambda x: torch.clamp_max(x, 1),
    "crossed": lambda x: x.clamp(3, 1),
    "clip": lambda x: torch.clip(x, 0, 2),
    "float_bounds": lambda x: x.clamp(0.5, 2.5),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_of_two_operands(name: str, dtype: torch.dtype, check: Check, numbers: Numbers) -> None:
    x = numbers(dtype)
    check(BINARY[name], [x.unsqueeze(1), x.unsqueeze(0)], others=[[x[:2].unsqueeze(1), x.unsqueeze(0)]])


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax"])
def test_of_two_bools(name: str, check: Check) -> None:
    flags = torch.tensor([True, False])
    check(BINARY[name], [flags.unsqueeze(1), flags])


@pytest.mark.parametrize("name", CLAMPS)
def test_clamps(name: str, check: Check, numbers: Numbers) -> None:
    integers = INTEGERS if name != "both" else INTEGERS[:-1]
    inputs = [numbers(dtype) for dtype in FLOATS + integers]
    check(lambda *xs: [CLAMPS[name](x) for x in xs], inputs, others=[[x[:3] for x in inputs]])


def test_clamps_to_a_size(check: Check) -> None:
    check(lambda x: x.clamp(max=x.shape[0]), [torch.arange(9)], others=[[torch.arange(4)]])


@pytest.mark.parametrize("bounds", [(float("nan"), 1.0), (0.0, float("nan")), (float("nan"), float("nan"))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_bound_that_is_no_number(bounds: tuple[float, float], dtype: torch.dtype, check: Check) -> None:
    check(
        lambda x: (x.clamp(*bounds), x.clamp(min=bounds[0]), x.clamp(max=bounds[1])),
        [torch.tensor([0.5, 2.0], dtype=dtype)],
    )
