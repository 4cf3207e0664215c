from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
import pytest
import scipy.special
import torch
from conftest import convert, run

if TYPE_CHECKING:
    from conftest import Check

special = torch.special
WHOLE = np.concatenate([np.linspace(-30, 30, 601), [0.0, 8.0, -8.0, 1e-6]])
POSITIVE = np.concatenate([np.logspace(-12, 2.5, 500), [2.0, 8.0]])

# The reference, the points, and whether the function changes its sign: its error is then one of the amplitude.
FUNCTIONS = {
    "i0": (special.i0, scipy.special.i0, WHOLE, False),
    "i0e": (special.i0e, scipy.special.i0e, WHOLE, False),
    "i1": (special.i1, scipy.special.i1, WHOLE, False),
    "i1e": (special.i1e, scipy.special.i1e, WHOLE, False),
    "k0": (special.modified_bessel_k0, scipy.special.k0, POSITIVE, False),
    "k1": (special.modified_bessel_k1, scipy.special.k1, POSITIVE, False),
    "scaled k0": (special.scaled_modified_bessel_k0, scipy.special.k0e, POSITIVE, False),
    "scaled k1": (special.scaled_modified_bessel_k1, scipy.special.k1e, POSITIVE, False),
    "j0": (special.bessel_j0, scipy.special.j0, WHOLE, True),
    "j1": (special.bessel_j1, scipy.special.j1, WHOLE, True),
    "y0": (special.bessel_y0, scipy.special.y0, POSITIVE, True),
    "y1": (special.bessel_y1, scipy.special.y1, POSITIVE, True),
    "airy": (special.airy_ai, lambda x: scipy.special.airy(x)[0], WHOLE, True),
    "spherical": (special.spherical_bessel_j0, lambda x: np.sinc(x / np.pi), WHOLE, True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_exact_to_the_last_digits(name: str) -> None:
    function, reference, points, oscillates = FUNCTIONS[name]
    x = torch.from_numpy(points)
    session = ort.InferenceSession(convert(function, [x], [None], None), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run(session, [x])[0], reference(points), rtol=1e-10, atol=1e-11 if oscillates else 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_at_the_ends(name: str, check: Check) -> None:
    check(FUNCTIONS[name][0], [torch.tensor([float("nan"), 0.0, 1.0, 2.0, 8.0])])


@pytest.mark.parametrize("name", ["k0", "k1", "y0", "y1"])
def test_is_nan_below_zero(name: str, check: Check) -> None:
    check(FUNCTIONS[name][0], [torch.tensor([-1.0, -20.0])])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_have_the_signs_of_eager(name: str) -> None:
    function, zeros = FUNCTIONS[name][0], torch.tensor([-0.0, 0.0])
    session = ort.InferenceSession(convert(function, [zeros], [None], None), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(np.signbit(run(session, [zeros])[0]), np.signbit(function(zeros).numpy()))
