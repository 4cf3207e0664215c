from __future__ import annotations

from typing import TYPE_CHECKING

import onnxruntime as ort
import pytest
import torch
from conftest import assert_same, convert, eager, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Check

OPSETS = (18, 22)


def rotated(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation.unsqueeze(1)).flatten(3)


def test_rotary_embeddings_over_dynamic_sequences(check: Check) -> None:
    check(
        lambda x, angles: rotated(x, torch.polar(torch.ones_like(angles), angles)),
        [torch.randn(2, 3, 4, 8), torch.randn(3, 4)],
        others=[[torch.randn(1, 5, 4, 8), torch.randn(5, 4)]],
    )


class Rotary(torch.nn.Module):
    """Rotates with a complex buffer."""

    rotation: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rotation", torch.polar(torch.ones(10, 4), torch.randn(10, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(x, self.rotation[: x.shape[1]])


def test_a_complex_buffer_is_split(check: Check) -> None:
    check(Rotary(), [torch.randn(2, 3, 4, 8)], others=[[torch.randn(1, 5, 4, 8)]])


def as_pairs(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, y: torch.view_as_real(function(torch.complex(x, y), torch.complex(y, x)))


FUNCTIONS = {
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / (b + 2),
    "numbers": lambda a, b: (2.0 * a - b * 1j) + (2 + 3j),
    "real beside complex": lambda a, b: a.real - b * a.imag + a,
    "powers": lambda a, b: a.square() + torch.exp(b) + (a + 3).reciprocal(),
    "matrices": lambda a, b: a @ b.transpose(0, 1),
    "joined and summed": lambda a, b: torch.cat([a, b, a.conj()], 1).sum(1),
    "powers of whole numbers": lambda a, b: a**2 + b**3 - (a + 3) ** -2 + a**0,
    "other powers": lambda a, b: a**0.5 + b ** (1.5 + 1j) + a**b,
    "roots and logarithms": lambda a, b: a.sqrt() + b.log() + (-a.real.abs() + 0j).sqrt(),
    "other bases": lambda a, b: a.exp2() + b.log2() - a.log10() + b.log1p() * a.expm1(),
    "sines": lambda a, b: a.sin() + b.cos() * a.sinh() - b.cosh() + a.tanh() + b.sigmoid(),
    "other sines": lambda a, b: a.tan() + a.asin() - b.acos() + a.atan(),
    "other hyperbolic sines": lambda a, b: a.asinh() - b.acosh() + a.atanh(),
    "inverse roots": lambda a, b: a.rsqrt() + (b + 1e-3).rsqrt(),
    "margins": lambda a, b: torch.nn.functional.pad(a, (1, 2), value=3.0) + torch.constant_pad_nd(b, (2, 1), 1.5),
    "directions": lambda a, b: a.sgn() + (b * 0).sgn(),
    "new tensors": lambda a, b: (
        a + torch.full_like(b, 2) + torch.full((3,), 1 + 2j) + torch.ones_like(a) - torch.zeros(3, dtype=a.dtype)
    ),
    "written slices": lambda a, b: torch.slice_scatter(a, b[:1], 0, 1, 2),
    "a number first": lambda a, b: 2 - a + 3j / (b + 2),
    "casts": lambda a, b: a.real.to(torch.complex64) + b,
    "written at places": lambda a, b: (
        a.scatter_add(1, torch.zeros(2, 3, dtype=torch.int64), b)
        + a.index_add(0, torch.tensor([1, 1]), b)
        + a.masked_scatter(b.real > 0, b)
        + torch.diagonal_scatter(a, b[:, 0])
    ),
    "spreads": lambda a, b: a.std() + b.var(1, correction=0, keepdim=True) + 0 * a,
    "as large as another": lambda a, b: a / a.abs().sum(1, keepdim=True).expand_as(b),
    "frames": lambda a, b: torch.stft(a.reshape(-1), 4, 1, window=b.real.abs().reshape(-1)[:4], return_complex=True),
    "casts to the dtype that it has": lambda a, b: a.to(b.device, torch.complex64) + b.to(torch.complex64),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_arithmetic(function: Callable[..., torch.Tensor], check: Check) -> None:
    check(as_pairs(function), [torch.randn(2, 3), torch.randn(2, 3)])


def test_size_and_angle(check: Check) -> None:
    check(
        lambda x, y: (torch.complex(x, y).abs(), torch.complex(x, y).angle(), torch.complex(x, y).conj().imag),
        [torch.randn(2, 3), torch.randn(2, 3)],
    )


def test_the_angle_of_real_numbers(check: Check) -> None:
    check(lambda x: (torch.angle(x), torch.real(x), torch.conj(x)), [torch.tensor([1.0, -2.0, 0.0, float("nan")])])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("count", [7, 8])
def test_fourier_transforms(count: int, normalization: int, opset: int, check: Check) -> None:
    def transforms(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, y)
        forward = torch.ops.aten._fft_c2c(z, [1, 2], normalization, True)
        inverse = torch.ops.aten._fft_c2c(z, [2], normalization, False)
        half = torch.ops.aten._fft_r2c(x, [1, 2], normalization, True)
        whole = torch.ops.aten._fft_c2r(half, [1, 2], normalization, count)
        return torch.view_as_real(forward), torch.view_as_real(inverse), torch.view_as_real(half), whole

    # float64: onnxruntime's transform of a length that is no power of two has only five digits in float32
    check(transforms, [torch.randn(2, 3, count).double(), torch.randn(2, 3, count).double()], opset=opset)


def test_a_transform_of_a_signal_of_dynamic_length(check: Check) -> None:
    check(
        lambda x: torch.view_as_real(torch.ops.aten._fft_r2c(x, [1], 0, False)),
        [torch.randn(2, 8)],
        others=[[torch.randn(1, 6)]],
    )


HUGE = torch.tensor([3e30, -1e-30, 0.0, float("inf"), 1.0, 1e-38])


def test_sizes_and_quotients_neither_overflow_nor_vanish(check: Check) -> None:
    def sizes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, y)
        return z.abs(), torch.view_as_real(torch.complex(x[:2], y[:2]).reciprocal())

    check(sizes, [HUGE, torch.tensor([4e30, 2e-30, 0.0, 1.0, float("nan"), 0.0])])


QUESTIONS = {
    "equal": lambda a, b: (a == b, a != b, a == 1, a == 1 + 2j),
    "finite": lambda a, b: (a.isnan(), b.isinf(), a.isfinite()),
}


@pytest.mark.parametrize("function", QUESTIONS.values(), ids=QUESTIONS)
def test_questions(function: Callable[..., torch.Tensor], check: Check) -> None:
    x = torch.tensor([1.0, 1, float("nan"), float("inf"), 0])
    y = torch.tensor([2.0, 0, 1, 3, float("inf")])
    check(lambda x, y: function(torch.complex(x, y), torch.complex(x, y.nan_to_num(5))), [x, y])


INPUTS = {
    "read": lambda z: (z.abs(), z.angle(), z.real, torch.view_as_real(z)),
    "moved": lambda z: (torch.view_as_real(z.T), torch.view_as_real(torch.cat([z, z * 2]))),
    "returned": lambda z: z * 0.5 + 1,
    "compared": lambda z: (z == 1, z.isnan()),
    "asked": lambda z: ((z * 0).any(), z.bool(), z.logical_not(), torch.count_nonzero(z), z.nonzero()),
    "of its size": lambda z: z + torch.zeros(z.shape[0], 1),
}


@pytest.mark.parametrize("function", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_an_input_has_a_last_axis_of_two(function: Callable[..., object], dtype: torch.dtype) -> None:
    inputs = [torch.randn(n, 2, dtype=dtype) for n in (3, 1, 0)]
    model = convert(function, inputs[:1], [{0: torch.export.Dim.DYNAMIC}], None)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for z in inputs:
        expected = [torch.view_as_real(y) if y.is_complex() else y for y in eager(function, [z])]
        for reference, got in zip(expected, run(session, [torch.view_as_real(z)]), strict=True):
            assert_same(reference, got, f"{tuple(z.shape)}")


def test_complex_tensors_without_elements(check: Check) -> None:
    check(
        as_pairs(lambda a, b: (a * b).sqrt() / (b + 2) + a.tanh()),
        [torch.randn(2, 3), torch.randn(2, 3)],
        others=[[torch.randn(0, 3), torch.randn(0, 3)]],
    )


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "inverse"])
def test_a_transform_that_is_not_scaled(forward: bool, check: Check) -> None:
    def transformed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.ops.prims.fft_c2c(torch.complex(x, y), dim=[1, 2], forward=forward))

    # An inverse divides by the number of samples, which must be known.
    others = [[torch.randn(1, 5, 4), torch.randn(1, 5, 4)]] if forward else [[torch.randn(1, 3, 4)] * 2]
    check(transformed, [torch.randn(2, 3, 4), torch.randn(2, 3, 4)], others=others)


@pytest.mark.parametrize("count", [7, 8])
def test_half_a_spectrum_that_is_not_scaled(count: int, check: Check) -> None:
    def transformed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = torch.ops.prims.fft_r2c(x, dim=[1, 2], onesided=True)
        both = torch.ops.prims.fft_r2c(x, dim=[2], onesided=False)
        whole = torch.ops.prims.fft_c2r(half, dim=[1, 2], last_dim_size=count)
        return torch.view_as_real(half), torch.view_as_real(both), whole

    check(transformed, [torch.randn(2, 3, count).double()], others=[[torch.randn(1, 3, count).double()]])


def test_parts_keep_the_signs_of_zeros(check: Check) -> None:
    zeros = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0])
    check(lambda x, y: torch.complex(x, y).angle(), [zeros, zeros.roll(1)], others=[[zeros[:2], zeros[1:3]]])


def test_roots_beside_the_axes_lose_no_digits(check: Check) -> None:
    x = torch.tensor([1.0, -1, 1e-3, -1e3, 0, 0, 2, -2])
    y = torch.tensor([1e-6, 1e-6, -1e-6, 1e-4, 0, -3, 0, -0.0])
    check(lambda x, y: torch.complex(x, y).sqrt().real, [x, y])
    check(lambda x, y: torch.complex(x, y).sqrt().imag * 1e4, [x, y])
