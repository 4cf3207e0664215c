"""Transforms of signals of any length, even and odd, along any axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats

from called import CalledWithAll
from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

SIZES = [(2, 6, 7), (3, 5, 4), (1, 1, 2), (1, 9, 3)]
FORWARD = ("fft", "ifft", "rfft", "ihfft", "fft2", "ifft2", "rfft2", "ihfft2", "fftn", "ifftn", "rfftn", "ihfftn")
TO_REAL = ("irfft", "hfft", "irfft2", "hfft2", "irfftn", "hfftn")


def signals() -> list[torch.Tensor]:
    return [floats(*sizes) for sizes in SIZES]


def pairs(x: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts, also of what torch keeps as a conjugate."""
    return torch.stack([x.real, x.imag], -1)


def transformed(name: str, **options: object) -> Callable[[torch.Tensor], torch.Tensor]:
    transform = getattr(torch.fft, name)
    if name in TO_REAL:
        return lambda x: transform(torch.complex(x, x.flip(0)), **options)
    return lambda x: pairs(transform(x, **options))


PLANS = [(name, None) for name in FORWARD + TO_REAL]
SCALED = [(name, norm) for name in ("fft", "ihfft2", "irfft", "hfftn") for norm in ("ortho", "forward")]


@pytest.mark.parametrize(("name", "norm"), PLANS + SCALED)
def test_as_long_as_the_signal(name: str, norm: str | None, check: Check) -> None:
    first, *others = signals()
    check(transformed(name, norm=norm), [first], others=[[x] for x in others])


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("samples", [1, 4, 5, 16])
def test_cut_or_continued(name: str, samples: int, check: Check) -> None:
    first, *others = signals()
    for axis in (-1, 1):
        check(transformed(name, n=samples, dim=axis), [first], others=[[x] for x in others])


THERE_AND_BACK: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one axis": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
    "the first axis": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1),
    "all axes": lambda x: torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape),
    "complex": lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real,
    "a convolution": lambda x: torch.fft.irfft(
        torch.fft.rfft(x, n=2 * x.shape[-1]) * torch.fft.rfft(x.flip(-1), n=2 * x.shape[-1]), n=2 * x.shape[-1]
    )[..., : x.shape[-1]],
    "mixing tokens": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
}


@pytest.mark.parametrize("function", THERE_AND_BACK.values(), ids=THERE_AND_BACK)
def test_there_and_back(function: Callable[[torch.Tensor], torch.Tensor], check: Check) -> None:
    first, *others = signals()
    check(function, [first], others=[[x] for x in others])


def test_float64_keeps_its_digits() -> None:
    """onnxruntime 1.31 scales an inverse transform of float64 by a float32."""
    x = floats(3, 7).double()
    model = to_onnx(CalledWithAll(lambda x: torch.fft.ifft(torch.fft.fft(x)).real), (x,))
    (got,) = model.run({model.inputs[0].name: x}, runner="onnxruntime").values()
    torch.testing.assert_close(got, x, rtol=1e-14, atol=1e-14)


WINDOW = torch.hann_window(8)
SHORT = torch.hann_window(6)
SPECTRA = [floats(2, 5, 7), floats(3, 5, 4), floats(1, 5, 2)]
INVERSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: torch.istft(torch.complex(x, x * 0.5), 8, 2, window=WINDOW),
    "not centred": lambda x: torch.istft(torch.complex(x, -x), 8, 4, window=torch.ones(8), center=False),
    "normalized": lambda x: torch.istft(torch.complex(x, x), 8, 3, window=WINDOW, normalized=True),
    "a length": lambda x: torch.istft(torch.complex(x, x), 8, 2, window=WINDOW, length=5),
    "a length beyond the frames": lambda x: torch.istft(torch.complex(x, x), 8, 2, window=WINDOW, length=40),
    "a short window": lambda x: torch.istft(torch.complex(x, x), 8, 2, 6, SHORT),
    "no window": lambda x: torch.istft(torch.complex(x, x), 8, 2),
}


@pytest.mark.parametrize("function", INVERSES.values(), ids=INVERSES)
def test_signals_of_spectra(function: Callable[[torch.Tensor], torch.Tensor], check: Check) -> None:
    check(function, [SPECTRA[0]], others=[[x] for x in SPECTRA[1:]])


def test_signals_of_whole_spectra(check: Check) -> None:
    def complex_signal(x: torch.Tensor) -> torch.Tensor:
        spectra = torch.complex(x, x.flip(0))
        return pairs(torch.istft(spectra, 8, 2, window=WINDOW, onesided=False, return_complex=True))

    check(complex_signal, [floats(2, 8, 7)], others=[[floats(1, 8, 4)]])
