"""Short-time spectra of signals of any length, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats

if TYPE_CHECKING:
    from conftest import Check

WINDOW = torch.hann_window(16)
BANDS = floats(9, 5).abs()


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.stft(x, 16, 4, window=WINDOW, return_complex=True))


def both_sides(x: torch.Tensor) -> torch.Tensor:
    given = {"center": False, "onesided": False, "normalized": True, "return_complex": True}
    return torch.view_as_real(torch.stft(x, 16, 4, window=WINDOW, **given))


def short_window(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 20, 5, win_length=16, window=WINDOW, pad_mode="constant", return_complex=True).abs()


def bands(x: torch.Tensor) -> torch.Tensor:
    power = torch.stft(x, 16, 8, 16, WINDOW, return_complex=True).abs() ** 2
    return (power.transpose(-1, -2) @ BANDS).clamp(min=1e-5).log10()


@pytest.mark.parametrize("function", [spectrum, both_sides, short_window, bands])
def test_signals_of_any_length(function: Callable[[torch.Tensor], torch.Tensor], check: Check) -> None:
    check(function, [floats(2, 64)], others=[[floats(3, 101)]])


def test_one_signal(check: Check) -> None:
    check(spectrum, [floats(64)], others=[[floats(101)]])


def phases(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 16, 5, window=WINDOW, center=False, return_complex=True).angle()


def phases_of_an_odd_window(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x[:, :15]).angle()


def phases_of_all(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x).angle()


def phases_of_both_sides(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fft(x[:, :16]).angle()[:, ::8]


@pytest.mark.parametrize("function", [phases, phases_of_an_odd_window, phases_of_all, phases_of_both_sides])
def test_a_real_entry_of_a_spectrum_has_the_phase_of_a_real_number(
    function: Callable[[torch.Tensor], torch.Tensor], check: Check
) -> None:
    check(function, [floats(2, 64) - 1], others=[[floats(3, 101) - 1], [floats(2, 128) - 1]])
