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


def values(function: object, x: torch.Tensor) -> np.ndarray:
    session = ort.InferenceSession(convert(function, [x], [None], None), providers=["CPUExecutionProvider"])
    return run(session, [x])[0]


def test_erfinv_is_exact_to_the_last_digits_everywhere() -> None:
    inside = 1 - torch.logspace(-15.5, -0.001, 400, dtype=torch.float64)
    x = torch.cat([inside, -inside, torch.logspace(-30, -3, 100, dtype=torch.float64)])
    np.testing.assert_allclose(values(torch.erfinv, x), scipy.special.erfinv(x.numpy()), rtol=1e-11)


def test_ndtri_is_exact_to_the_last_digits_everywhere() -> None:
    x = torch.cat([torch.logspace(-300, -0.3, 600, dtype=torch.float64), torch.linspace(0.51, 0.999, 200).double()])
    np.testing.assert_allclose(values(torch.special.ndtri, x), scipy.special.ndtri(x.numpy()), rtol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_inverses_at_the_ends(dtype: torch.dtype, check: Check) -> None:
    check(torch.erfinv, [torch.tensor([-1.0, 1, 0, 2, -3, float("nan"), 0.5], dtype=dtype)])
    check(torch.special.ndtri, [torch.tensor([0.0, 1, 0.5, 2, -3, float("nan"), 1e-30], dtype=dtype)])


def test_the_inverses_of_integers(check: Check) -> None:
    check(lambda x: (torch.erfinv(x), torch.special.ndtri(x)), [torch.tensor([0, 1])])
