from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check, Numbers

FLOATS = (torch.float32, torch.float16, torch.float64)

FUNCTIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "hardtanh": lambda x: functional.hardtanh(x, -0.4, 1.2),
    "silu": functional.silu,
    # Without infinities: torch's kernel for AVX-512 makes NaN of them, its kernel for AVX2 does not.
    "gelu": lambda x: functional.gelu(x.clamp(-1e4, 1e4)),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "mish": functional.mish,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "elu": lambda x: functional.elu(x, 1.3),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 1.3),
    "softplus": functional.softplus,
    "softplus_threshold": lambda x: functional.softplus(x, 2, 3),
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "tanhshrink": functional.tanhshrink,
    "threshold": lambda x: functional.threshold(x, 0.4, -3),
    "hardshrink": lambda x: functional.hardshrink(x, 0.6),
    "softshrink": lambda x: functional.softshrink(x, 0.6),
    "rrelu": functional.rrelu,
    "prelu": lambda x: functional.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activates(name: str, check: Check, numbers: Numbers) -> None:
    inputs = [numbers(dtype) for dtype in FLOATS]
    check(
        lambda *xs: [FUNCTIONS[name](x) for x in xs], inputs, others=[[x[:2] for x in inputs], [x[:0] for x in inputs]]
    )


@pytest.mark.parametrize("opset", [18, 25])
def test_runs_in_the_oldest_and_the_newest_opset(opset: int, check: Check, numbers: Numbers) -> None:
    check(lambda x: [function(x) for function in FUNCTIONS.values()], [numbers(torch.float32)], opset=opset)


def test_sigmoid_and_tanh_of_integers_are_floats(check: Check, numbers: Numbers) -> None:
    check(lambda x, y: (torch.sigmoid(x), torch.tanh(x), torch.sigmoid(y)), [numbers(torch.int64), numbers(torch.bool)])


def test_relu_of_integers(check: Check, numbers: Numbers) -> None:
    check(lambda x, y: (torch.relu(x), functional.relu6(x), torch.relu(y)), [numbers(torch.int64), numbers(torch.int8)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_glu_gates_one_half_by_the_other(axis: int, check: Check) -> None:
    check(lambda x: functional.glu(x, axis), [torch.randn(4, 6, 8)], others=[[torch.randn(2, 4, 10)]])


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)], ids=str)
def test_prelu_has_a_weight_for_each_channel(shape: tuple[int, ...], check: Check) -> None:
    check(functional.prelu, [torch.randn(shape), torch.tensor([0.1, 0.2, 0.3])])
