"""Halves are rounded where torch rounds them: once behind an activation, and a number before it divides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from called import CalledWithAll
from exportguard import to_onnx

Function = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: dict[str, Function] = {
    "silu": functional.silu,
    "glu": lambda x: functional.glu(x, 0),
    "elu": lambda x: functional.elu(x, 0.3),
    "selu": functional.selu,
    "celu": functional.celu,
    "mish": functional.mish,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "leaky relu": functional.leaky_relu,
    "softplus": lambda x: functional.softplus(x, 2.5, 10),
    "logsigmoid": functional.logsigmoid,
    "expm1": torch.expm1,
    "log1p": lambda x: torch.log1p(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
}

REMAINDERS: dict[str, Function] = {
    "remainder": lambda x: x % 0.7,
    "remainder of a tensor": lambda x: torch.remainder(x, torch.tensor(0.7)),
    "fmod": lambda x: torch.fmod(x, 0.3),
    "fmod of a tensor": lambda x: torch.fmod(x, torch.tensor(0.3, dtype=torch.float64)),
    "quotient rounded down": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    "quotient rounded to zero": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "quotient by a number of a tensor": lambda x: torch.div(x, torch.tensor(0.7), rounding_mode="trunc"),
    "quotient of tensors": lambda x: torch.div(x, x.flip(0), rounding_mode="trunc"),
}


def share_that_differs(function: Function, dtype: torch.dtype, scale: float) -> float:
    """The share of the elements of a file's answer that are other numbers than eager's."""
    model = to_onnx(CalledWithAll(function).eval(), (torch.randn(4, dtype=dtype),), dynamic_shapes=(({0: "n"},),))
    x = (scale * torch.randn(4000, generator=torch.Generator().manual_seed(1))).to(dtype)
    (got,) = model.run({model.inputs[0].name: x}).values()
    return (torch.as_tensor(got) != function(x)).float().mean().item()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_of_bfloat16_is_rounded_once(name: str) -> None:
    assert share_that_differs(ACTIVATIONS[name], torch.bfloat16, 2) < 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", REMAINDERS)
def test_a_number_is_a_half_where_torch_makes_one_of_it(name: str, dtype: torch.dtype) -> None:
    assert share_that_differs(REMAINDERS[name], dtype, 8) == 0
